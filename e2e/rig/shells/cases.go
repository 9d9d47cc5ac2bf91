package shells

import (
	"strings"
)

// In all but fish, and in all but dash and fish.
const (
	posix    = "bash dash zsh"
	bashZsh  = "bash zsh"
	inDocker = "docker exec -it -e PTYMARK -e GO -e 'PS1==<$?:>=' -e PATH=$D:/bin $CONTAINER "
)

// A shell inside, with the prompt that it understands.
func inside(wrap string) string { return strings.TrimSpace(wrap + " env 'PS1==<$?:>=' dash -i") }

func escaped(line string) string { return strings.ReplaceAll(line, "$", `\$`) }

// What is typed most: a command, Ctrl-C, and a prompt after that.
func interrupted(line string) [][2]string {
	return [][2]string{{line, "ready"}, {ctrlC, ""}}
}

// A fini that is PID 1, in a process group that is outside of its namespace.
func asInit(command string) string {
	return "unshare -fp --mount-proc fini sh -c '" + command + "; exit $?'"
}

// A pipeline is stopped, goes on, and is ended.
func stoppedAndOn(line, last string) [][2]string {
	return [][2]string{
		{line, "ready"}, {ctrlZ, "!prompt, stopped " + last}, {"fg", "!foreground " + last}, {ctrlC, ""},
	}
}

var TypedCases = []typedCase{
	// Alone.
	{Name: "a status", quick: "bash/pair", keys: [][2]string{{"fini sh -c 'exit 3'", ""}}, shows: "=<3:"},
	{Name: "a signal", keys: [][2]string{{"fini sh -c 'kill -USR1 $$'", ""}}, shows: "=<138:"},
	{Name: "no such command", keys: [][2]string{{"fini true", ""}, {"fini false", ""}}, shows: "=<1:"},
	{Name: "a line is read", quick: "fish/alone", Row: "the command can read the terminal", keys: [][2]string{
		{"fini reader", "ready"}, {"word", "read word"}, {ctrlD, ""},
	}, shows: "eof"},
	{Name: "Ctrl-C", keys: interrupted("fini napper"), shows: "=<130:"},
	{Name: "Ctrl-C is one signal", quick: "dash/alone", Row: "Ctrl-C reaches the command, once", keys: [][2]string{
		{"fini counter", "ready"}, {ctrlC, "signal 2"}, {ctrlC, "signal 2"}, {ctrlBackslash, ""},
	}, shows: "=<7:"},
	{Name: "Ctrl-backslash", quick: "zsh/pair", Row: "Ctrl-\\ ends the command, and the shell says so", Part: "screen", keys: [][2]string{
		{"fini napper", "ready"}, {ctrlBackslash, ""},
	}, shows: "=<131:"},
	{Name: "a command that survives INT", keys: [][2]string{
		{"fini tough", "ready"}, {ctrlC, "caught"}, {ctrlBackslash, "caught"}, {"word", ""},
	}, shows: "=<3:"},
	{Name: "a command that tidies up", keys: interrupted("fini tidy"), shows: "tidied"},
	{Name: "a command with children", quick: "dash/alone", keys: interrupted("fini mother"), shows: "mother"},
	{Name: "the terminal's size", keys: [][2]string{
		{"fini counter", "ready"}, {"!winch", "signal 28"}, {ctrlBackslash, ""},
	}, shows: "=<7:"},
	{Name: "ignored INT", in: posix, quick: "zsh/alone", Row: "an ignored SIGINT stays ignored, as under nohup", keys: [][2]string{
		{"(trap '' INT; fini counter)", "ready"}, {ctrlC, "!nothing"}, {ctrlBackslash, ""},
	}, never: "signal 2\n"},
	{Name: "a list", quick: "bash/pair", keys: interrupted("fini napper; echo after")},
	{Name: "and, or", keys: interrupted("fini napper && echo and || echo or")},
	{Name: "two of them", keys: interrupted("fini fini napper"), shows: "=<130:"},
	{Name: "two of them, Ctrl-Z, fg", quick: "fish/alone", keys: stoppedAndOn("fini fini napper", "napper")},
	{Name: "two of them, Ctrl-Z, bg, fg", keys: [][2]string{
		{"fini fini napper", "ready"}, {ctrlZ, "!prompt, stopped napper"}, {"bg", "!prompt, background napper"}, {"fg", "!foreground napper"}, {ctrlC, ""},
	}},
	{Name: "two of them, a line is read", keys: [][2]string{{"fini fini reader", "ready"}, {"word", "read word"}, {ctrlD, ""}}, shows: "eof"},
	{Name: "in a PID namespace", quick: "zsh/pair", needs: needRoot, keys: [][2]string{
		{"unshare -fp --mount-proc sh -c 'fini reader; exit $?'", "ready"}, {"word", "read word"}, {ctrlD, ""},
	}, shows: "eof"},
	{Name: "in a PID namespace, Ctrl-Z, fg", in: posix, needs: needRoot, keys: stoppedAndOn("unshare -fp --mount-proc sh -c 'fini napper; exit $?'", "napper")},
	{Name: "PID 1 in a job", needs: needRoot, keys: [][2]string{
		{asInit("reader"), "ready"}, {"word", "read word"}, {ctrlD, ""},
	}, shows: "eof"},
	{Name: "PID 1 in a job, Ctrl-Z, fg", in: posix, quick: "bash/alone", needs: needRoot, keys: stoppedAndOn(asInit("napper"), "napper")},
	{Name: "PID 1 in a job, &, fg", in: posix, unordered: true, needs: needRoot, keys: [][2]string{
		{asInit("reader") + " &", "!prompt, stopped reader"}, {"echo mine", "mine"}, {"fg", "!foreground reader"}, {"word", "read word"}, {ctrlD, ""},
	}},
	{Name: "exec", keys: [][2]string{{"exec fini sh -c 'echo ready; exit 4'", "ready"}, {"!", "!end"}}},
	{Name: "kill 0 by the command", quick: "bash/pair", keys: [][2]string{{`fini sh -c 'trap "kill 0" EXIT; exit 3'`, ""}}, shows: "=<143:"},

	// Jobs.
	{Name: "Ctrl-Z", quick: "dash/pair", Row: "Ctrl-Z brings the prompt back", keys: [][2]string{{"fini napper", "ready"}, {ctrlZ, "!prompt, stopped napper"}}},
	{Name: "Ctrl-Z, fg", quick: "zsh/pair", Row: "after Ctrl-Z `fg` continues the command", keys: [][2]string{
		{"fini reader", "ready"}, {ctrlZ, "!prompt, stopped reader"}, {"fg", "!foreground reader"}, {"word", "read word"}, {ctrlC, ""},
	}},
	{Name: "Ctrl-Z, fg, twice", quick: "fish/alone", keys: [][2]string{
		{"fini reader", "ready"}, {ctrlZ, "!prompt, stopped reader"}, {"fg", "!foreground reader"}, {"word", "read word"},
		{ctrlZ, "!prompt, stopped reader"}, {"fg", "!foreground reader"}, {"another", "read another"}, {ctrlD, ""},
	}, shows: "eof"},
	{Name: "Ctrl-Z, bg, fg", keys: [][2]string{
		{"fini napper", "ready"}, {ctrlZ, "!prompt, stopped napper"}, {"bg", "!prompt, background napper"}, {"fg", "!foreground napper"}, {ctrlC, ""},
	}},
	{Name: "Ctrl-Z, bg, kill", in: posix, unordered: true, keys: [][2]string{
		{"fini napper", "ready"}, {ctrlZ, "!prompt, stopped napper"}, {"bg", "!prompt, background napper"}, {"kill %1", "!prompt, gone"}, {"true", ""},
	}, shows: "erminated"},
	{Name: "&, a line for the shell", in: posix, quick: "bash/pair", Row: "`cmd &` takes no line from the shell", unordered: true, keys: [][2]string{
		{"fini reader &", "!prompt, stopped reader"}, {"echo mine", "mine"}, {"true", "!prompt, prompt"}, {"fg", "!foreground reader"}, {"word", "read word"}, {ctrlD, ""},
	}, shows: "eof"},
	{Name: "&, fg, a line", in: posix, quick: "dash/pair", Row: "`cmd &`, `fg`, and it reads a line", unordered: true, keys: [][2]string{
		{"fini asker &", "!prompt, seen ready"}, {"fg", "!foreground asker"}, {"!touch", "!nothing"}, {"word", ""},
	}, shows: "read word"},
	{Name: "&, fg, Ctrl-C", in: posix, unordered: true, keys: [][2]string{
		{"fini napper &", "!prompt, seen ready"}, {"fg", "!foreground napper"}, {ctrlC, ""},
	}},
	{Name: "kill %1", in: posix, quick: "bash/alone", Row: "`kill %1` ends the job, and the shell says so", Part: "screen", unordered: true, keys: [][2]string{
		{"fini napper &", "!prompt, seen ready"}, {"kill %1", "!prompt, gone"}, {"true", ""},
	}, shows: "erminated"},
	{Name: "kill %1 (fish)", in: "fish", loose: true, keys: [][2]string{
		{"fini napper &", "!prompt, background napper"}, {"kill -- -(jobs -g)", "!prompt, gone"}, {"true", ""},
	}},
	{Name: "kill -INT %1", in: posix, unordered: true, keys: [][2]string{{"fini napper &", "!prompt, seen ready"}, {"kill -INT %1", "!prompt, gone"}, {"true", ""}}},
	{Name: "kill -HUP %1", in: posix, quick: "bash/pair", unordered: true, keys: [][2]string{{"fini napper &", "!prompt, seen ready"}, {"kill -HUP %1", "!prompt, gone"}, {"true", ""}}},
	{Name: "kill -KILL %1", in: posix, says: true, unordered: true, keys: [][2]string{{"fini napper &", "!prompt, seen ready"}, {"kill -KILL %1", "!prompt, gone"}, {"true", ""}}},
	{Name: "kill -STOP %1, -CONT", in: posix, unordered: true, keys: [][2]string{
		{"fini napper &", "!prompt, seen ready"}, {"kill -STOP %1", "!prompt, stopped napper"}, {"true", ""},
		{"kill -CONT %1", "!prompt, background napper"}, {"kill %1", "!prompt, gone"}, {"true", ""},
	}},
	{Name: "a signal for the command", quick: "fish/alone", keys: [][2]string{
		{"fini counter", "ready"}, {"!kill job USR1", "signal 10"}, {ctrlBackslash, ""},
	}, shows: "=<7:"},
	// The command gets it with the whole job, and, if it has taken that by then, once more by way of fini.
	{Name: "a signal for the job", loose: true, keys: [][2]string{
		{"fini counter", "ready"}, {"!kill group USR1", "signal 10"}, {ctrlBackslash, ""},
	}, shows: "=<7:"},
	{Name: "kill -KILL of the command", quick: "dash/alone", Row: "the shell has its terminal back after SIGKILL of the command", keys: [][2]string{
		{"fini sh -c 'kill -KILL $$'", ""}, {"echo here", ""},
	}, shows: "=<137:"},
	{Name: "kill -KILL of the job", quick: "zsh/pair", Row: "the shell has its terminal back after SIGKILL of the init", says: true, keys: [][2]string{
		{"fini napper", "ready"}, {"!kill job KILL", ""}, {"echo here", ""},
	}, shows: "=<137:"},
	{Name: "kill -KILL of the inner fini", says: true, keys: [][2]string{
		{"fini napper", "ready"}, {"!kill inner KILL", ""}, {"echo here", ""},
	}, shows: "=<137:"},
	{Name: "what kill -KILL leaves", in: "bash", quick: "bash/pair", Row: "SIGKILL of the init ends the command", Part: "survivors", says: true, keys: [][2]string{
		{"fini napper", "ready"}, {"!kill job KILL", ""},
	}},
	{Name: "kill -KILL of the group", quick: "dash/alone", says: true, keys: [][2]string{{"fini napper", "ready"}, {"!kill group KILL", ""}}, shows: "=<137:"},
	{Name: "a leftover", keys: [][2]string{{"fini leaver", ""}}, shows: "left", Differs: "fini ends what the command leaves, and says so",
		differ: [][2]string{{"fini leaver", "fini: stopping leftover"}, {"!nothing", ""}}},
	{Name: "stty tostop", in: posix, keys: [][2]string{
		{"stty tostop", ""}, {"fini talker &", "!prompt, stopped talker"}, {"fg", ""},
	}, unordered: true, shows: "said"},

	// What stops itself.
	{Name: "a command that stops itself", in: posix, quick: "bash/pair", keys: [][2]string{
		{"fini selfish", "!prompt, stopped selfish"}, {"fg", ""},
	}, Differs: "a command that stops itself alone does not stop its job", differ: [][2]string{
		{"fini selfish", "!halted selfish"}, {"!kill group CONT", "continued"}, {"!nothing", ""},
	}},
	{Name: "a command that folds before it stops", keys: [][2]string{
		{"fini polite", "ready"}, {ctrlZ, "!prompt, stopped polite"}, {"fg", "unfolding"}, {"word", ""},
	}, unordered: true},
	{Name: "a command deaf to Ctrl-Z", keys: [][2]string{
		{"fini deaf", "ready"}, {ctrlZ, "!nothing"}, {"word", ""},
	}, Differs: "fini stops with the job though the command does not", differ: [][2]string{
		{"fini deaf", "ready"}, {ctrlZ, "!prompt, halted fini"}, {"!kill group KILL", "!gone"},
	}},

	// Pipelines.
	{Name: "first of a pipeline", quick: "fish/alone", Row: "Ctrl-C ends a pipeline, the init first in it", keys: interrupted("fini feeder | passer | taker")},
	{Name: "middle of a pipeline", keys: interrupted("feeder | fini passer | taker")},
	{Name: "last of a pipeline", quick: "dash/alone", Row: "Ctrl-C ends a pipeline, the init last in it", keys: interrupted("feeder | passer | fini taker")},
	{Name: "everywhere in a pipeline", quick: "zsh/pair", Row: "Ctrl-C ends a pipeline of two inits", keys: interrupted("fini feeder | fini taker")},
	{Name: "first of a pipeline, Ctrl-Z", quick: "fish/pair", Row: "Ctrl-Z and `fg` of a pipeline, the init first in it", keys: stoppedAndOn("fini feeder | passer | taker", "taker")},
	{Name: "middle of a pipeline, Ctrl-Z", keys: stoppedAndOn("feeder | fini passer | taker", "taker")},
	{Name: "last of a pipeline, Ctrl-Z", quick: "dash/alone", Row: "Ctrl-Z and `fg` of a pipeline, the init last in it", keys: stoppedAndOn("feeder | passer | fini taker", "taker")},
	{Name: "everywhere in a pipeline, Ctrl-Z", keys: stoppedAndOn("fini feeder | fini passer | fini taker", "taker")},
	{Name: "a pipeline with cat, Ctrl-Z", keys: [][2]string{
		{"fini feeder | cat", "go"}, {ctrlZ, "!prompt, stopped cat"}, {"fg", "!foreground cat"}, {ctrlC, ""},
	}},
	{Name: "cat before it", in: posix, quick: "bash/pair", Row: "`cat | init cat` reads the terminal", keys: [][2]string{
		{"cat | fini cat", "!foreground cat"}, {"one", "one"}, {"two", "two"}, {ctrlD, ""},
	}},
	{Name: "a pager", quick: "dash/pair", Row: "`init cmd | less` is left by `q`", loose: true, keys: [][2]string{
		{"fini chatty | less", "!seen 23\r\n:"}, {key + "q", "!nothing"}, {"!touch", ""},
	}},
	{Name: "Ctrl-backslash in a pipeline", keys: [][2]string{{"fini feeder | taker", "ready"}, {ctrlBackslash, ""}}},
	{Name: "an end of its own in a pipeline", in: bashZsh, quick: "zsh/alone", keys: [][2]string{{"fini sh -c 'exit 3' | fini sh -c 'kill -HUP $$' | fini cat", ""}}, shows: ":3 129 0>="},
	{Name: "a background pipeline", in: posix, unordered: true, keys: [][2]string{
		{"fini feeder | fini taker &", "!prompt, background taker"}, {"fg", "!foreground taker, seen ready"}, {ctrlC, ""},
	}},

	// Loops, scripts, and others that start commands.
	{Name: "for", in: posix, quick: "zsh/alone", Row: "Ctrl-C ends a loop", keys: interrupted("for i in 1 2 3; do fini napper; echo it$i; done"), never: "it1"},
	{Name: "for (fish)", in: "fish", quick: "fish/pair", keys: interrupted("for i in 1 2 3; fini napper; echo it$i; end"), never: "it1"},
	{Name: "while", in: posix, keys: interrupted("while true; do fini napper; echo again; done"), never: "again"},
	{Name: "for, Ctrl-Z", in: "bash", keys: [][2]string{
		{"for i in 1 2; do fini napper; echo it$i; done", "ready"}, {ctrlZ, "!prompt, stopped napper"}, {"fg", "!foreground napper"}, {ctrlC, ""},
	}},
	{Name: "while read", in: posix, quick: "bash/alone", keys: interrupted(`printf 'a\nb\n' | while read x; do fini napper; echo it$x; done`), never: "ita"},
	{Name: "a bash script", quick: "zsh/alone", Row: "Ctrl-C ends a script", keys: interrupted(`bash -c 'fini napper; echo after'`), never: "after"},
	{Name: "a dash script", keys: interrupted("dash -c 'fini napper; echo after'"), never: "after"},
	{Name: "a script file", quick: "bash/pair", keys: interrupted("script fini")},
	{Name: "a strict bash script", keys: interrupted("bash $D/strict fini"), never: "after"},
	// Not by bash: without fini too, one in some hundreds of bash 5.2's sends itself SIGINT in a loop.
	{Name: "a script that catches INT", keys: interrupted("dash $D/trapper fini"), shows: "trapped\nafter"},
	{Name: "fini before a script", quick: "fish/alone", keys: interrupted("fini bash -c 'napper; echo after'"), never: "after"},
	{Name: "fini before a script, Ctrl-Z", keys: stoppedAndOn("fini bash -c 'napper; echo after'", "napper")},
	{Name: "a script, Ctrl-Z", keys: stoppedAndOn("bash -c 'fini napper; echo after'", "napper")},
	{Name: "a function", in: posix, quick: "bash/pair", keys: interrupted("f() { fini napper; echo after; }; f")},
	{Name: "a function (fish)", in: "fish", keys: interrupted("function f; fini napper; echo after; end; f")},
	{Name: "a subshell", in: posix, keys: interrupted("(fini napper; echo after)")},
	{Name: "a command substitution", in: posix, quick: "bash/alone", keys: interrupted("x=$(fini napper); echo after")},
	{Name: "a command substitution (fish)", in: "fish", keys: interrupted("set x (fini napper); echo after")},
	{Name: "make", quick: "fish/alone", tries: 10, Row: "Ctrl-C ends make as it would without", Part: "screen", keys: interrupted("make -s -f $D/Makefile P='fini'"), never: "after"},
	{Name: "before make", quick: "bash/pair", tries: 10, keys: interrupted("fini make -s -f $D/Makefile"), never: "after"},
	{Name: "xargs", keys: interrupted("echo 1 2 3 | xargs -n1 fini napper")},
	{Name: "before xargs", keys: interrupted("echo 1 2 3 | fini xargs -n1 napper")},
	{Name: "timeout --foreground", quick: "fish/alone", tries: 10, keys: interrupted("timeout --foreground 1000 fini napper")},
	{Name: "before timeout --foreground", tries: 10, keys: interrupted("fini timeout --foreground 1000 napper")},
	{Name: "timeout", tries: 10, keys: interrupted("timeout 1000 fini napper")},
	{Name: "before timeout", quick: "zsh/pair", keys: interrupted("fini timeout 1000 napper"),
		Differs: "timeout makes itself a group of its own, which is in the background, unless it leads the job",
		differ:  [][2]string{{"fini timeout 1000 napper", "ready"}, {"!nothing", "!background napper"}, {"!kill job TERM", ""}}},
	{Name: "env, nice", keys: interrupted("env nice fini napper")},
	{Name: "find -exec", keys: interrupted(`find $D/Makefile $D/text -exec fini napper ';'`)},

	// The end of the terminal, and of the shell.
	{Name: "hang-up", quick: "dash/alone", keys: [][2]string{{"fini napper", "ready"}, {"!hangup", "!end"}}},
	{Name: "hang-up of a pipeline", keys: [][2]string{{"fini feeder | fini taker", "ready"}, {"!hangup", "!end"}}},
	{Name: "hang-up of a stopped job", keys: [][2]string{{"fini napper", "ready"}, {ctrlZ, ""}, {"!hangup", "!end"}}},
	{Name: "hang-up of a script", quick: "bash/pair", keys: [][2]string{{"bash -c 'fini napper; echo after'", "ready"}, {"!hangup", "!end"}}},
	{Name: "SIGKILL of the shell", keys: [][2]string{{"fini napper", "ready"}, {"!kill shell KILL", "!end"}}},

	// Full screens, and shells inside.
	{Name: "less", loose: true, keys: [][2]string{
		{"fini less $D/text", "text"}, {key + "G", "!seen (END)"}, {key + "q", ""},
	}},
	{Name: "less, Ctrl-Z", quick: "fish/alone", loose: true, keys: [][2]string{
		{"fini less $D/text", "text"}, {ctrlZ, "!prompt, stopped less"}, {"fg", "!foreground less"}, {key + "G", "!seen (END)"}, {key + "q", ""},
	}},
	{Name: "vi", loose: true, keys: [][2]string{
		{"fini vi -u NONE new", "new"}, {key + "ione" + escape, "one"}, {":wq", ""}, {"cat new", "one"},
	}},
	{Name: "vi, Ctrl-Z", loose: true, keys: [][2]string{
		{"fini vi -u NONE new", "new"}, {ctrlZ, "!prompt, stopped vi"}, {"fg", "!foreground vi"}, {":q!", ""},
	}},
	{Name: "a shell inside", quick: "zsh/pair", keys: [][2]string{
		{inside("fini"), ""}, {"napper", "ready"}, {ctrlC, ""}, {"napper", "ready"}, {ctrlZ, "!prompt, stopped napper"}, {"fg", "!foreground napper"}, {ctrlC, ""}, {"exit 5", ""},
	}},
	{Name: "a bash inside, suspended", in: "bash", keys: [][2]string{
		{"fini bash --norc --noediting -i", ""}, {"suspend", "!prompt, stopped bash"}, {"fg", "!foreground bash"}, {"napper", "ready"}, {ctrlC, ""}, {"exit 5", ""},
	}, Differs: "a command that stops itself alone does not stop its job", differ: [][2]string{
		{"fini bash --norc --noediting -i", ""}, {"suspend", "!halted bash"}, {"!kill job CONT", ""}, {"exit 5", ""},
	}},
	{Name: "inside a shell inside", keys: [][2]string{
		{inside(""), ""}, {"fini napper", "ready"}, {ctrlC, ""}, {"fini napper", "ready"}, {ctrlZ, "!prompt, stopped napper"}, {"fg", "!foreground napper"}, {ctrlC, ""}, {"exit 5", ""},
	}},

	// Another user.
	{Name: "before setpriv", quick: "dash/alone", needs: needRoot, keys: interrupted("fini setpriv --reuid=65534 --regid=65534 --clear-groups napper")},
	{Name: "behind setpriv", needs: needRoot, keys: interrupted("setpriv --reuid=65534 --regid=65534 --clear-groups fini napper")},
	{Name: "before su", tries: 10, says: true, needs: needRoot, keys: interrupted("fini su -s /bin/sh nobody -c $D/napper")},
	{Name: "before setpriv, Ctrl-Z", quick: "bash/pair", needs: needRoot, keys: stoppedAndOn("fini setpriv --reuid=65534 --regid=65534 --clear-groups napper", "napper")},
	{Name: "behind runuser", tries: 10, needs: needRoot, keys: interrupted("runuser -u nobody -- fini napper")},

	// Terminals in a terminal.
	{Name: "under script", keys: interrupted("/usr/bin/script -qec 'fini napper' /dev/null")},
	{Name: "before script", quick: "fish/alone", keys: interrupted("fini /usr/bin/script -qec napper /dev/null")},
	// What tmux draws again must not be what is waited for.
	{Name: "in tmux", tries: 5, in: "bash", loose: true, needs: needTmux, keys: [][2]string{
		{"tmux -f $D/tmux.conf -S $GO.tmux new-session \"" + escaped(inside("")) + "\"", ""},
		{"fini napper", "ready"}, {ctrlC, "=<130:"}, {"fini teller", "telling"}, {ctrlZ, "!stopped teller"}, {"fg", "!nothing"}, {"word", "read word"}, {ctrlC, ""}, {"exit", ""},
	}, shows: "=<130:"},
	{Name: "before tmux", tries: 5, in: "bash", loose: true, needs: needTmux, keys: [][2]string{
		{"fini tmux -f $D/tmux.conf -S $GO.tmux new-session \"" + escaped(inside("")) + "\"", ""}, {"napper", "ready"}, {ctrlC, "=<130:"}, {"exit", ""},
	}, shows: "=<130:"},
	{Name: "over ssh", in: "bash", quick: "bash/pair", needs: needSSH, keys: [][2]string{
		{"ssh -F $D/ssh_config -tt pty \"exec env PATH=$PATH " + escaped(inside("")) + "\"", ""},
		{"fini napper", "ready"}, {ctrlC, ""}, {"fini reader", "ready"}, {ctrlZ, "!prompt, stopped reader"}, {"fg", "!nothing"}, {"word", "read word"}, {ctrlC, ""}, {"exit 6", ""},
	}, shows: "=<6:"},
	{Name: "over ssh, without a shell", in: "bash", needs: needSSH, keys: interrupted("ssh -F $D/ssh_config -tt pty env PATH=$PATH fini napper")},
	{Name: "over ssh, hang-up", in: "bash", needs: needSSH, keys: [][2]string{
		{"ssh -F $D/ssh_config -tt pty env PATH=$PATH fini napper", "ready"}, {"!hangup", "!end"},
	}},
	{Name: "before ssh", in: "bash", quick: "bash/alone", needs: needSSH, keys: interrupted("fini ssh -F $D/ssh_config -tt pty env PATH=$PATH napper")},
	{Name: "in docker exec", tries: 5, loose: true, in: "bash", needs: needContainer, keys: [][2]string{
		{inDocker + "sh", ""},
		{"fini reader", "ready"}, {ctrlC, ""}, {"fini reader", "ready"}, {ctrlZ, "!prompt, stopped reader"}, {"fg", "!nothing"}, {"word", "read word"}, {ctrlC, ""}, {"exit 6", ""},
	}, shows: "=<6:"},
	{Name: "in docker exec, without a shell", in: "bash", needs: needContainer, keys: interrupted(inDocker + "fini reader")},
	{Name: "before docker exec", in: "bash", quick: "bash/pair", needs: needContainer, keys: interrupted("fini " + inDocker + "reader")},
}

package shells

// A typedCase is one thing that is done at a terminal. Its keys are steps, with " / " between them. A step is what is typed:
// a line; a key, as ^C; what follows a ~, without a newline; or what follows a !, which is done elsewhere. Behind " => " is
// what is then waited for, which without that is a prompt: a text on the screen, or facts behind a !. See shellUser.do and
// shellUser.await. In a line, "fini" is fini with its flags, another init, or nothing.
type typedCase struct {
	Name  string
	in    string // the shells; "" for all
	quick string // what make test has of it: the shell and the place, as "zsh/pair"
	keys  string

	shows string // is on the screen in the end, without fini and with it
	never string // is not

	says      bool // fini says what it stops, in a line that is not compared
	loose     bool // the screen is drawn in an order that varies: only statuses are compared
	unordered bool // a job in the background and the shell write at the same time: so are sorted lines
	races     bool // a program has a race of its own, so that it may not go the same

	Differs string // why it is not the same with fini
	differ  string // the steps that are typed then

	Row  string // the question that the case answers in the table that TestTerminalAsWithoutAnInit prints; "" for none
	Part string // what answers it: "" for what the keys do, or "screen" or "survivors"
}

const (
	posix   = "bash dash zsh"
	bashZsh = "bash zsh"

	ctrlC = " => ready / ^C" // what is typed most, and a prompt after that

	dash     = "env 'PS1==<$?:>=' dash -i" // a shell inside, with the prompt that it understands
	inTmux   = `tmux -f $D/tmux.conf -S $GO.tmux new-session "env 'PS1==<\$?:>=' dash -i"`
	overSSH  = "ssh -F $D/ssh_config -tt pty "
	inDocker = "docker exec -it -e PTYMARK -e GO -e 'PS1==<$?:>=' -e PATH=$D:/bin $CONTAINER "
	asNobody = "setpriv --reuid=65534 --regid=65534 --clear-groups "
)

// stopped is a line whose job is stopped once it is ready, and goes on: its last process has this name.
func stopped(line, last string) string {
	return line + " => ready / ^Z => !prompt, stopped " + last + " / fg => !foreground " + last
}

var TypedCases = []typedCase{
	// Alone.
	{Name: "a status", quick: "bash/pair", keys: "fini sh -c 'exit 3'", shows: "=<3:"},
	{Name: "a signal", keys: "fini sh -c 'kill -USR1 $$'", shows: "=<138:"},
	{Name: "no such command", keys: "fini true / fini false", shows: "=<1:"},
	{Name: "a line is read", quick: "fish/alone", keys: "fini reader => ready / word => read word / ^D", shows: "eof",
		Row: "the command can read the terminal"},
	{Name: "Ctrl-C", keys: "fini napper" + ctrlC, shows: "=<130:"},
	{Name: "Ctrl-C is one signal", quick: "dash/alone", keys: `fini counter => ready / ^C => signal 2 / ^C => signal 2 / ^\`, shows: "=<7:",
		Row: "Ctrl-C reaches the command, once"},
	{Name: "Ctrl-backslash", quick: "zsh/pair", keys: `fini napper => ready / ^\`, shows: "=<131:",
		Row: "Ctrl-\\ ends the command, and the shell says so", Part: "screen"},
	{Name: "a command that survives INT", keys: `fini tough => ready / ^C => caught / ^\ => caught / word`, shows: "=<3:"},
	{Name: "a command that tidies up", keys: "fini tidy" + ctrlC, shows: "tidied"},
	{Name: "a command with children", quick: "dash/alone", keys: "fini mother" + ctrlC, shows: "mother"},
	{Name: "the terminal's size", keys: `fini counter => ready / !winch => signal 28 / ^\`, shows: "=<7:"},
	{Name: "ignored INT", in: posix, quick: "zsh/alone", keys: `(trap '' INT; fini counter) => ready / ^C => !nothing / ^\`, never: "signal 2\n",
		Row: "an ignored SIGINT stays ignored, as under nohup"},
	{Name: "a list", quick: "bash/pair", keys: "fini napper; echo after" + ctrlC},
	{Name: "and, or", keys: "fini napper && echo and || echo or" + ctrlC},
	{Name: "two of them", keys: "fini fini napper" + ctrlC, shows: "=<130:"},
	{Name: "two of them, Ctrl-Z, fg", quick: "fish/alone", keys: stopped("fini fini napper", "napper") + " / ^C"},
	{Name: "two of them, Ctrl-Z, bg, fg",
		keys: "fini fini napper => ready / ^Z => !prompt, stopped napper / bg => !prompt, background napper / fg => !foreground napper / ^C"},
	{Name: "two of them, a line is read", keys: "fini fini reader => ready / word => read word / ^D", shows: "eof"},
	{Name: "in a PID namespace", quick: "zsh/pair", keys: "unshare -fp --mount-proc sh -c 'fini reader; exit $?' => ready / word => read word / ^D", shows: "eof"},
	{Name: "in a PID namespace, Ctrl-Z, fg", in: posix, keys: stopped("unshare -fp --mount-proc sh -c 'fini napper; exit $?'", "napper") + " / ^C"},
	{Name: "PID 1 in a job", keys: "unshare -fp --mount-proc fini sh -c 'reader; exit $?' => ready / word => read word / ^D", shows: "eof"},
	{Name: "PID 1 in a job, Ctrl-Z, fg", in: posix, quick: "bash/alone",
		keys: stopped("unshare -fp --mount-proc fini sh -c 'napper; exit $?'", "napper") + " / ^C"},
	{Name: "PID 1 in a job, &, fg", in: posix, unordered: true, keys: "unshare -fp --mount-proc fini sh -c 'reader; exit $?' & => !prompt, stopped reader" +
		" / echo mine => mine / fg => !foreground reader / word => read word / ^D"},
	{Name: "exec", keys: "exec fini sh -c 'echo ready; exit 4' => ready / !nothing => !end"},
	{Name: "kill 0 by the command", quick: "bash/pair", keys: `fini sh -c 'trap "kill 0" EXIT; exit 3'`, shows: "=<143:"},

	// Jobs.
	{Name: "Ctrl-Z", quick: "dash/pair", keys: "fini napper => ready / ^Z => !prompt, stopped napper", Row: "Ctrl-Z brings the prompt back"},
	{Name: "Ctrl-Z, fg", quick: "zsh/pair", keys: stopped("fini reader", "reader") + " / word => read word / ^C",
		Row: "after Ctrl-Z `fg` continues the command"},
	{Name: "Ctrl-Z, fg, twice", quick: "fish/alone", keys: stopped("fini reader", "reader") +
		" / word => read word / ^Z => !prompt, stopped reader / fg => !foreground reader / another => read another / ^D", shows: "eof"},
	{Name: "Ctrl-Z, bg, fg",
		keys: "fini napper => ready / ^Z => !prompt, stopped napper / bg => !prompt, background napper / fg => !foreground napper / ^C"},
	{Name: "Ctrl-Z, bg, kill", in: posix, unordered: true, shows: "erminated",
		keys: "fini napper => ready / ^Z => !prompt, stopped napper / bg => !prompt, background napper / kill %1 => !prompt, gone / true"},
	{Name: "&, a line for the shell", in: posix, quick: "bash/pair", unordered: true, shows: "eof", Row: "`cmd &` takes no line from the shell",
		keys: "fini reader & => !prompt, stopped reader / echo mine => mine / true => !prompt, prompt / fg => !foreground reader / word => read word / ^D"},
	{Name: "&, fg, a line", in: posix, quick: "dash/pair", unordered: true, Row: "`cmd &`, `fg`, and it reads a line",
		keys: "fini asker & => !prompt, seen ready / fg => !foreground asker / !touch => !nothing / word", shows: "read word"},
	{Name: "&, fg, Ctrl-C", in: posix, unordered: true, keys: "fini napper & => !prompt, seen ready / fg => !foreground napper / ^C"},
	{Name: "kill %1", in: posix, quick: "bash/alone", unordered: true, keys: "fini napper & => !prompt, seen ready / kill %1 => !prompt, gone / true",
		shows: "erminated", Row: "`kill %1` ends the job, and the shell says so", Part: "screen"},
	{Name: "kill %1 (fish)", in: "fish", loose: true, keys: "fini napper & => !prompt, background napper / kill -- -(jobs -g) => !prompt, gone / true"},
	{Name: "kill -INT %1", in: posix, unordered: true, keys: "fini napper & => !prompt, seen ready / kill -INT %1 => !prompt, gone / true"},
	{Name: "kill -HUP %1", in: posix, quick: "bash/pair", unordered: true, keys: "fini napper & => !prompt, seen ready / kill -HUP %1 => !prompt, gone / true"},
	{Name: "kill -KILL %1", in: posix, says: true, unordered: true, keys: "fini napper & => !prompt, seen ready / kill -KILL %1 => !prompt, gone / true"},
	{Name: "kill -STOP %1, -CONT", in: posix, unordered: true, keys: "fini napper & => !prompt, seen ready / kill -STOP %1 => !prompt, stopped napper / true" +
		" / kill -CONT %1 => !prompt, background napper / kill %1 => !prompt, gone / true"},
	{Name: "a signal for the command", quick: "fish/alone", keys: `fini counter => ready / !kill job USR1 => signal 10 / ^\`, shows: "=<7:"},
	// The command gets it with the whole job, and, if it has taken that by then, once more by way of fini.
	{Name: "a signal for the job", loose: true, keys: `fini counter => ready / !kill group USR1 => signal 10 / ^\`, shows: "=<7:"},
	{Name: "kill -KILL of the command", quick: "dash/alone", keys: "fini sh -c 'kill -KILL $$' / echo here", shows: "=<137:",
		Row: "the shell has its terminal back after SIGKILL of the command"},
	{Name: "kill -KILL of the job", quick: "zsh/pair", says: true, keys: "fini napper => ready / !kill job KILL / echo here", shows: "=<137:",
		Row: "the shell has its terminal back after SIGKILL of the init"},
	{Name: "kill -KILL of the inner fini", says: true, keys: "fini napper => ready / !kill inner KILL / echo here", shows: "=<137:"},
	{Name: "what kill -KILL leaves", in: "bash", quick: "bash/pair", says: true, keys: "fini napper => ready / !kill job KILL",
		Row: "SIGKILL of the init ends the command", Part: "survivors"},
	{Name: "kill -KILL of the group", quick: "dash/alone", says: true, keys: "fini napper => ready / !kill group KILL", shows: "=<137:"},
	{Name: "a leftover", keys: "fini leaver", shows: "left",
		Differs: "fini ends what the command leaves, and says so", differ: "fini leaver => fini: stopping leftover / !nothing"},
	{Name: "stty tostop", in: posix, keys: "stty tostop / fini talker & => !prompt, stopped talker / fg", unordered: true, shows: "said"},

	// What stops itself.
	{Name: "a command that stops itself", in: posix, quick: "bash/pair", keys: "fini selfish => !prompt, stopped selfish / fg",
		Differs: "a command that stops itself alone does not stop its job",
		differ:  "fini selfish => !halted selfish / !kill group CONT => continued / !nothing"},
	{Name: "a command that folds before it stops", unordered: true, keys: "fini polite => ready / ^Z => !prompt, stopped polite / fg => unfolding / word"},
	{Name: "a command deaf to Ctrl-Z", keys: "fini deaf => ready / ^Z => !nothing / word",
		Differs: "fini stops with the job though the command does not",
		differ:  "fini deaf => ready / ^Z => !prompt, halted fini / !kill group KILL => !gone"},

	// Pipelines.
	{Name: "first of a pipeline", quick: "fish/alone", keys: "fini feeder | passer | taker" + ctrlC, Row: "Ctrl-C ends a pipeline, the init first in it"},
	{Name: "middle of a pipeline", keys: "feeder | fini passer | taker" + ctrlC},
	{Name: "last of a pipeline", quick: "dash/alone", keys: "feeder | passer | fini taker" + ctrlC, Row: "Ctrl-C ends a pipeline, the init last in it"},
	{Name: "everywhere in a pipeline", quick: "zsh/pair", keys: "fini feeder | fini taker" + ctrlC, Row: "Ctrl-C ends a pipeline of two inits"},
	{Name: "first of a pipeline, Ctrl-Z", quick: "fish/pair", keys: stopped("fini feeder | passer | taker", "taker") + " / ^C",
		Row: "Ctrl-Z and `fg` of a pipeline, the init first in it"},
	{Name: "middle of a pipeline, Ctrl-Z", keys: stopped("feeder | fini passer | taker", "taker") + " / ^C"},
	{Name: "last of a pipeline, Ctrl-Z", quick: "dash/alone", keys: stopped("feeder | passer | fini taker", "taker") + " / ^C",
		Row: "Ctrl-Z and `fg` of a pipeline, the init last in it"},
	{Name: "everywhere in a pipeline, Ctrl-Z", keys: stopped("fini feeder | fini passer | fini taker", "taker") + " / ^C"},
	{Name: "a pipeline with cat, Ctrl-Z", keys: "fini feeder | cat => go / ^Z => !prompt, stopped cat / fg => !foreground cat / ^C"},
	{Name: "cat before it", in: posix, quick: "bash/pair", keys: "cat | fini cat => !foreground cat / one => one / two => two / ^D",
		Row: "`cat | init cat` reads the terminal"},
	{Name: "a pager", quick: "dash/pair", loose: true, keys: "fini chatty | less => !seen 23\r\n: / ~q => !nothing / !touch",
		Row: "`init cmd | less` is left by `q`"},
	{Name: "Ctrl-backslash in a pipeline", keys: `fini feeder | taker => ready / ^\`},
	{Name: "an end of its own in a pipeline", in: bashZsh, quick: "zsh/alone", keys: "fini sh -c 'exit 3' | fini sh -c 'kill -HUP $$' | fini cat", shows: ":3 129 0>="},
	{Name: "a background pipeline", in: posix, unordered: true,
		keys: "fini feeder | fini taker & => !prompt, background taker / fg => !foreground taker, seen ready / ^C"},

	// Loops, scripts, and others that start commands.
	{Name: "for", in: posix, quick: "zsh/alone", keys: "for i in 1 2 3; do fini napper; echo it$i; done" + ctrlC, never: "it1", Row: "Ctrl-C ends a loop"},
	{Name: "for (fish)", in: "fish", quick: "fish/pair", keys: "for i in 1 2 3; fini napper; echo it$i; end" + ctrlC, never: "it1"},
	{Name: "while", in: posix, keys: "while true; do fini napper; echo again; done" + ctrlC, never: "again"},
	{Name: "for, Ctrl-Z", in: "bash", keys: stopped("for i in 1 2; do fini napper; echo it$i; done", "napper") + " / ^C"},
	{Name: "while read", in: posix, quick: "bash/alone", keys: `printf 'a\nb\n' | while read x; do fini napper; echo it$x; done` + ctrlC, never: "ita"},
	{Name: "a bash script", quick: "zsh/alone", keys: "bash -c 'fini napper; echo after'" + ctrlC, never: "after", Row: "Ctrl-C ends a script"},
	{Name: "a dash script", keys: "dash -c 'fini napper; echo after'" + ctrlC, never: "after"},
	{Name: "a script file", quick: "bash/pair", keys: "script fini" + ctrlC},
	{Name: "a strict bash script", keys: "bash $D/strict fini" + ctrlC, never: "after"},
	// Not by bash: without fini too, one in some hundreds of bash 5.2's sends itself SIGINT in a loop.
	{Name: "a script that catches INT", keys: "dash $D/trapper fini" + ctrlC, shows: "trapped\nafter"},
	{Name: "fini before a script", quick: "fish/alone", keys: "fini bash -c 'napper; echo after'" + ctrlC, never: "after"},
	{Name: "fini before a script, Ctrl-Z", keys: stopped("fini bash -c 'napper; echo after'", "napper") + " / ^C"},
	{Name: "a script, Ctrl-Z", keys: stopped("bash -c 'fini napper; echo after'", "napper") + " / ^C"},
	{Name: "a function", in: posix, quick: "bash/pair", keys: "f() { fini napper; echo after; }; f" + ctrlC},
	{Name: "a function (fish)", in: "fish", keys: "function f; fini napper; echo after; end; f" + ctrlC},
	{Name: "a subshell", in: posix, keys: "(fini napper; echo after)" + ctrlC},
	{Name: "a command substitution", in: posix, quick: "bash/alone", keys: "x=$(fini napper); echo after" + ctrlC},
	{Name: "a command substitution (fish)", in: "fish", keys: "set x (fini napper); echo after" + ctrlC},
	{Name: "make", quick: "fish/alone", races: true, keys: "make -s -f $D/Makefile P='fini'" + ctrlC, never: "after",
		Row: "Ctrl-C ends make as it would without", Part: "screen"},
	{Name: "before make", quick: "bash/pair", races: true, keys: "fini make -s -f $D/Makefile" + ctrlC, never: "after"},
	{Name: "xargs", keys: "echo 1 2 3 | xargs -n1 fini napper" + ctrlC},
	{Name: "before xargs", keys: "echo 1 2 3 | fini xargs -n1 napper" + ctrlC},
	{Name: "timeout --foreground", quick: "fish/alone", races: true, keys: "timeout --foreground 1000 fini napper" + ctrlC},
	{Name: "before timeout --foreground", races: true, keys: "fini timeout --foreground 1000 napper" + ctrlC},
	{Name: "timeout", races: true, keys: "timeout 1000 fini napper" + ctrlC},
	{Name: "before timeout", quick: "zsh/pair", keys: "fini timeout 1000 napper" + ctrlC,
		Differs: "timeout makes itself a group of its own, which is in the background, unless it leads the job",
		differ:  "fini timeout 1000 napper => ready / !nothing => !background napper / !kill job TERM"},
	{Name: "env, nice", keys: "env nice fini napper" + ctrlC},
	{Name: "find -exec", keys: "find $D/Makefile $D/text -exec fini napper ';'" + ctrlC},

	// The end of the terminal, and of the shell.
	{Name: "hang-up", quick: "dash/alone", keys: "fini napper => ready / !hangup => !end"},
	{Name: "hang-up of a pipeline", keys: "fini feeder | fini taker => ready / !hangup => !end"},
	{Name: "hang-up of a stopped job", keys: "fini napper => ready / ^Z / !hangup => !end"},
	{Name: "hang-up of a script", quick: "bash/pair", keys: "bash -c 'fini napper; echo after' => ready / !hangup => !end"},
	{Name: "SIGKILL of the shell", keys: "fini napper => ready / !kill shell KILL => !end"},

	// Full screens, and shells inside.
	{Name: "less", loose: true, keys: "fini less $D/text => text / ~G => !seen (END) / ~q"},
	{Name: "less, Ctrl-Z", quick: "fish/alone", loose: true,
		keys: "fini less $D/text => text / ^Z => !prompt, stopped less / fg => !foreground less / ~G => !seen (END) / ~q"},
	{Name: "vi", loose: true, keys: "fini vi -u NONE new => new / ~ione\x1b => one / :wq / cat new => one"},
	{Name: "vi, Ctrl-Z", loose: true, keys: "fini vi -u NONE new => new / ^Z => !prompt, stopped vi / fg => !foreground vi / :q!"},
	{Name: "a shell inside", quick: "zsh/pair", keys: "fini " + dash + " / napper" + ctrlC + " / " + stopped("napper", "napper") + " / ^C / exit 5"},
	{Name: "a bash inside, suspended", in: "bash",
		keys:    "fini bash --norc --noediting -i / suspend => !prompt, stopped bash / fg => !foreground bash / napper" + ctrlC + " / exit 5",
		Differs: "a command that stops itself alone does not stop its job",
		differ:  "fini bash --norc --noediting -i / suspend => !halted bash / !kill job CONT / exit 5"},
	{Name: "inside a shell inside", keys: dash + " / fini napper" + ctrlC + " / " + stopped("fini napper", "napper") + " / ^C / exit 5"},

	// Another user.
	{Name: "before setpriv", quick: "dash/alone", keys: "fini " + asNobody + "napper" + ctrlC},
	{Name: "behind setpriv", keys: asNobody + "fini napper" + ctrlC},
	{Name: "before su", races: true, says: true, keys: "fini su -s /bin/sh nobody -c $D/napper" + ctrlC},
	{Name: "before setpriv, Ctrl-Z", quick: "bash/pair", keys: stopped("fini "+asNobody+"napper", "napper") + " / ^C"},
	{Name: "behind runuser", races: true, keys: "runuser -u nobody -- fini napper" + ctrlC},

	// Terminals in a terminal. What tmux draws again must not be what is waited for.
	{Name: "under script", keys: "/usr/bin/script -qec 'fini napper' /dev/null" + ctrlC},
	// Without a shell that could continue a job the kernel stops nobody.
	{Name: "under script, Ctrl-Z", quick: "bash/pair", shows: "eof",
		keys: "/usr/bin/script -qec 'fini reader' /dev/null => ready / ^Z => !nothing / word => read word / ^D"},
	{Name: "under script and a shell, Ctrl-Z", quick: "dash/alone", shows: "over",
		keys: "/usr/bin/script -qec 'fini reader; echo over' /dev/null => ready / ^Z => !nothing / word => read word / ^D"},
	{Name: "before script", quick: "fish/alone", keys: "fini /usr/bin/script -qec napper /dev/null" + ctrlC},
	{Name: "in tmux", races: true, in: "bash", loose: true, shows: "=<130:", keys: inTmux + " / fini napper => ready / ^C => =<130:" +
		" / fini teller => telling / ^Z => !stopped teller / fg => !nothing / word => read word / ^C / exit"},
	{Name: "before tmux", races: true, in: "bash", loose: true, shows: "=<130:", keys: "fini " + inTmux + " / napper => ready / ^C => =<130: / exit"},
	{Name: "over ssh", in: "bash", quick: "bash/pair", shows: "=<6:", keys: overSSH + `"exec env PATH=$PATH 'PS1==<\$?:>=' dash -i" / fini napper` + ctrlC +
		" / fini reader => ready / ^Z => !prompt, stopped reader / fg => !nothing / word => read word / ^C / exit 6"},
	{Name: "over ssh, without a shell", in: "bash", keys: overSSH + "env PATH=$PATH fini napper" + ctrlC},
	{Name: "over ssh, hang-up", in: "bash", keys: overSSH + "env PATH=$PATH fini napper => ready / !hangup => !end"},
	{Name: "before ssh", in: "bash", quick: "bash/alone", keys: "fini " + overSSH + "env PATH=$PATH napper" + ctrlC},
	{Name: "in docker exec", races: true, loose: true, in: "bash", shows: "=<6:", keys: inDocker + "sh / fini reader" + ctrlC +
		" / fini reader => ready / ^Z => !prompt, stopped reader / fg => !nothing / word => read word / ^C / exit 6"},
	{Name: "in docker exec, without a shell", in: "bash", keys: inDocker + "fini reader" + ctrlC},
	{Name: "before docker exec", in: "bash", quick: "bash/pair", keys: "fini " + inDocker + "reader" + ctrlC},
}

// From docs/report.schema.json.

/** One object for one run, written when fini ends. Times are RFC 3339, in UTC. Pids are those of fini's PID namespace. Text that is no UTF-8 has U+FFFD for each byte that is none. */
export interface Report {
  /** The version of this format. It changes when a reader has to. */
  version: 2;
  /** The version of fini. */
  fini: string;
  /** The command and its arguments as fini was given them; empty under --pause. */
  command: string[];
  /** Whether there was more of it than the 256 KiB that are kept. */
  commandCut: boolean;
  /** The pid of the main child, which leads the command's process group; 0 where there was none (--pause, or it could not be started), or none that the outer fini of a pair could find. */
  pid: number;
  /** When fini started; in a pair, the one that writes. */
  started: string;
  /** When fini saw the end of the main child; null where it did not see it: the inner fini of a pair was killed, SIGKILL did not end the main child, or there was none. */
  ended: string | null;
  /** When nothing was left to do but to write this. */
  finished: string;
  /** The exit status of fini, with --timeout, --remap-exit and --orphans-exit applied. */
  status: number;
  /** Why the command was not started; null where it was. */
  error: string | null;
  /** How the main child ended; null where ended is. */
  exit: {
    /** Whether it was ended for want of memory. */
    oom: OutOfMemory | null;
    /** What it exited with; null where a signal ended it. */
    code: number | null;
    /** The signal that ended it; null where it exited. */
    signal: string | null;
  } | null;
  /** The first reason of fini's own to stop the command or what it left: its launcher died, the outer fini of the pair was killed (fini), a process ended that it is bound to (bind), the far end of stdin closed (--stdin-eof), the time was up (--timeout), or it had not ended in time after a signal (--kill-after); null if there was none. */
  stopped: 'launcher' | 'fini' | 'bind' | 'stdin' | 'timeout' | 'killAfter' | null;
  /** The first 1000 signals that were sent to fini, in the order in which it took them in. Two of a kind that come at once may be one. */
  signals: {
    /** When fini took it in. */
    at: string;
    /** The signal, before --rewrite. */
    signal: string;
    /** The process that sent it; null for the kernel (as for Ctrl-C), for one outside the PID namespace, and where it is not known. */
    sender: {
      /** Its pid. */
      pid: number;
      /** As ps shows it; empty where it had ended already. */
      name: string;
    } | null;
  }[];
  /** How many more signals there were. */
  signalsOmitted: number;
  /** The first 250 processes that fini found alive after the main child's end and had to stop or left alone (--allow-orphan, --orphans=leave), in the order in which it turned to them: all that a look at the tree has found. One that starts and is killed between two looks is not among them, nor is one that ended within --linger. Under --orphans=leave without --orphans-exit they are those that were alive when the main child had ended. */
  leftovers: Leftover[];
  /** How many more leftovers there were. Behind the first 10000 one that needed SIGKILL may count twice. */
  leftoversOmitted: number;
  /** How many other processes than the main child fini has reaped: its orphans. */
  reaped: number;
  /** How long it took, to the millisecond, by a clock that nobody sets. */
  seconds: {
    /** From the start of fini to the main child's end; null if ended is. */
    command: number | null;
    /** From the main child's end until nothing was left to do; null if ended is. */
    leftovers: number | null;
    /** From the start of fini until nothing was left to do. */
    total: number;
  };
  /** What the main child, the orphans, and what these had waited for took. In a report by the outer fini of a pair it includes the inner one. What nobody waited for is not in it. */
  usage: {
    /** Processor time in user mode. */
    userSeconds: number;
    /** Processor time in the kernel. */
    systemSeconds: number;
    /** The largest resident set of any one process. It is at least the few megabytes that fini itself had when it started the command. */
    maxRSSBytes: number;
  };
}

/** Null is what could not be known, as of a process that may not be looked at; an empty list is none. */
export interface Leftover {
  /** Whether it was left alone (--allow-orphan), by its own name or as a descendant of such a one. It counts for no status. */
  allowed: boolean;
  /** The first process above it that is no shell, as it was when the leftover was first seen; null if none was alive then. */
  owner: {
    /** Its pid. */
    pid: number;
    /** As the kernel keeps it. */
    name: string;
    /** Up to 512 bytes of its command line, or its name if it shows none. */
    command: string;
  } | null;
  /** What its own environment says of the test, script, step or job in which it was started, the most telling first: variables that tools set, such as PYTEST_CURRENT_TEST or npm_lifecycle_event. FINI_TEST is for those that set none. The first 4. Null if its environment may not be looked at. */
  context: {
    /** Its name. */
    variable: string;
    /** Up to 512 bytes of its value. */
    value: string;
  }[] | null;
  /** How old it was when fini found it, after the main child's end. How long it went on from that end is outlivedSeconds. */
  ageSeconds: number | null;
  /** How long after the main child's end it ended itself, however old it was; null if ended is, or if the main child's end was not seen. */
  outlivedSeconds: number | null;
  /** Its pid. */
  pid: number;
  /** Its command line, the arguments joined by spaces, or its name where it shows none. */
  command: string;
  /** Whether the command line goes on: 4000 bytes of it are kept. */
  commandCut: boolean;
  /** When it started, to about 10 ms. */
  started: string | null;
  /** The processes above it that were alive when it was first seen, the nearest first and at most 16; empty where fini had inherited it. */
  startedBy: {
    /** Its pid. */
    pid: number;
    /** As the kernel keeps it: up to 15 bytes of the file's name. */
    name: string;
  }[];
  /** Its process group; 0 for one of another PID namespace. */
  group: number | null;
  /** Its session; 0 for one of another PID namespace. */
  session: number | null;
  /** Which of fini's streams, where they are pipes or sockets, it had open for writing when it was found; null if its descriptors may not be looked at. */
  holds: ('stdout' | 'stderr')[] | null;
  /** On which addresses of TCP and Unix sockets it listened when it was found, such as 127.0.0.1:3000, [::1]:80, /run/a.sock or @abstract, by itself or with others that have the same socket: the first 16, in the order of its descriptors. Null if its descriptors may not be looked at, or if it is in another network namespace. */
  listens: string[] | null;
  /** Its working directory when it was found, up to 1024 bytes, as the kernel shows it: one that was removed ends in ' (deleted)'. */
  cwd: string | null;
  /** The number of its effective user when it was found. */
  user: number | null;
  /** The signals that fini has sent it, each kind once; SIGTERM also where it had that with the command's group. */
  sent: string[];
  /** How it ended: 'exit' and what it exited with, or the signal that ended it; null where fini did not reap it, because another process did or because it did not end. */
  ended: string | null;
  /** Whether it was ended for want of memory. */
  oom: OutOfMemory | null;
}

/** Whether the kernel has killed it for want of memory. Null if fini has sent the SIGKILL, if it did not end by one (the command: nor with the status 137), or if the kernel has killed nobody for memory in the cgroup meanwhile. */
export interface OutOfMemory {
  /** 'likely' if the kernel has killed for memory in the cgroup since the command was started: the count does not say whom. 'unknown' if there was no count to read. */
  verdict: 'likely' | 'unknown';
  /** What was read, or why it could not be. */
  reason: string;
}

#!/usr/bin/env node
// Runs fini, a static Linux binary from the package of this machine's architecture: in the place
// of this process where Node has process.execve, and else as its child. On other systems the
// command runs without fini.
'use strict';

const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { spawn } = require('node:child_process');

const { path: findBinary } = require('../index.js');
const takeValue = require('../flags.json'); // the flags whose value may be the next word

const [failed, notFound] = [125, 127];

function main(args) {
  const { command, bound } = parse(args);
  if (process.platform !== 'linux') {
    if (command.length === 0) fail(failed, `it needs Linux, and this is ${process.platform}`);
    say(`it needs Linux: ${command[0]} runs without it`);
    return stay(...forThisSystem(command));
  }
  const fini = binary();
  const bonds = bound ? startedByNpm() : [];
  if (process.execve) become(fini, [...bonds.map(bindTo), ...args]);
  // This process may exit before fini has bound itself to its parent.
  if (bound) bonds.push(process.pid);
  stay(fini, [...bonds.map(bindTo), ...args]);
}

const bindTo = pid => `--bind=${pid}`;

function fail(status, text) {
  say(text);
  process.exit(status);
}

// Reading process.stderr would make a pipe non-blocking for every process that has it.
function say(text) {
  try {
    fs.writeSync(2, `fini: ${text}\n`);
  } catch {
    // The reader is gone.
  }
}

function binary() {
  try {
    return findBinary();
  } catch (error) {
    return fail(failed, error.message);
  }
}

// parse finds the command after fini's flags, and says whether fini binds it to its parent process.
function parse(args) {
  let deathsig = process.env.FINI_PDEATHSIG;
  let i = 0;
  while (i < args.length && args[i].length > 1 && args[i][0] === '-') {
    const word = args[i++];
    if (word === '--') break;
    let flag, value;
    if (word.startsWith('--')) {
      [, flag, value] = /^--([^=]*)(?:=(.*))?$/s.exec(word);
    } else {
      // In -vt5, 5 is the value of -t.
      const at = [...word].findIndex(letter => takeValue.includes(letter));
      if (at > 0) [flag, value] = [word[at], word.slice(at + 1) || undefined];
    }
    if (takeValue.includes(flag)) value ??= args[i++];
    if (flag === 'p' || flag === 'pdeathsig') deathsig = value;
  }
  return { command: args.slice(i), bound: !/^=?none$/i.test(deathsig) };
}

// become executes fini in the place of this process.
function become(file, args) {
  // Node ignores these two signals. A caught signal has its default action after an execve.
  process.on('SIGPIPE', () => {}).on('SIGXFSZ', () => {});
  process.execve(file, [file, ...args], process.env);
}

// stay runs a program as a child, forwards signals to it, and exits as it does.
function stay(file, args, options) {
  const terminal = atTerminal();
  for (const [signal, number] of Object.entries(os.constants.signals)) {
    if (signalName(number) !== signal || !passed(signal, terminal)) continue;
    process.on(signal, () => {
      // A key's signal went to the whole job, and so to the child.
      if (!(terminal && isKey(signal) && inForeground())) child.kill(signal);
    });
  }
  // In a session of its own, the child does not get the signals to this process's group as well. At a terminal it stays,
  // because a new session has no terminal.
  const child = spawn(file, args, { stdio: 'inherit', detached: process.platform === 'linux' && !terminal, ...options });
  child.on('error', error => fail(error.code === 'ENOENT' ? notFound : failed, `cannot start ${file}: ${error.code}`));
  child.on('exit', (code, signal) => {
    if (signal === null) process.exit(code);
    process.removeAllListeners(signal); // its default again
    process.kill(process.pid, signal);
    process.exit(128 + os.constants.signals[signal]);
  });
}

// signalName is the first name of a signal: SIGABRT is SIGIOT, too.
const signalName = number => Object.entries(os.constants.signals).find(([, n]) => n === number)[0];

const isKey = signal => signal === 'SIGINT' || signal === 'SIGQUIT';

// passed reports whether this process catches a signal and forwards it.
function passed(signal, terminal) {
  if (process.platform === 'win32') return isKey(signal) || signal === 'SIGBREAK';
  switch (signal) {
    case 'SIGKILL': case 'SIGSTOP': // can't be
    case 'SIGCHLD': // Node's own
    case 'SIGBUS': case 'SIGFPE': case 'SIGILL': case 'SIGSEGV': // a fault that is caught comes again, for ever
      return false;
    case 'SIGTSTP': case 'SIGTTIN': case 'SIGTTOU': case 'SIGCONT': case 'SIGWINCH':
      return !terminal; // the whole job gets them
    default:
      return true;
  }
}

// stat is what proc_pid_stat(5) says from the parent on.
function stat(pid) {
  const text = fs.readFileSync(`/proc/${pid}/stat`, 'latin1');
  const [, ppid, pgrp, , tty, tpgid] = text.slice(text.lastIndexOf(')') + 2).split(' ').map(Number);
  return { ppid, pgrp, tty, tpgid };
}

function atTerminal() {
  return process.platform === 'linux' ? stat('self').tty !== 0 : [0, 1, 2].some(fd => require('node:tty').isatty(fd));
}

function inForeground() {
  if (process.platform !== 'linux') return true;
  const { pgrp, tpgid } = stat('self');
  return pgrp === tpgid;
}

// startedByNpm lists the processes of the npm that started this process, and the caller of npm: npm and its shell outlive
// their caller. The list ends at a process that does not look like npm.
function startedByNpm() {
  const walk = () => {
    const chain = [];
    let { env, ppid: pid } = process;
    for (let above; (above = npmAt(pid, env)).length > 0;) {
      chain.push(...above);
      env = environment(above.at(-1));
      pid = stat(above.at(-1)).ppid; // npm may have been called by another's script
    }
    // If PID 1 is npm's parent, it has adopted npm, or all processes die with it.
    return chain.length > 0 && pid > 1 ? [...chain, pid] : chain;
  };
  try {
    const [first, second] = [walk(), walk()];
    return String(first) === String(second) ? first : []; // one has ended, and its pid may be another's
  } catch {
    return []; // one has ended, or is another user's
  }
}

// npmAt returns the npm that has set these variables, if it is at this pid, or its shell is.
function npmAt(pid, { npm_lifecycle_script: script, npm_node_execpath: node }) {
  if (script === undefined || node === undefined) return [];
  const [, option, text] = strings(`/proc/${pid}/cmdline`);
  const shell = option === '-c' && text.startsWith(script) ? [pid] : [];
  const npm = shell.length > 0 ? stat(pid).ppid : pid;
  if (npm <= 1) return [];
  const isNpm = /^npm( |$)/.test(strings(`/proc/${npm}/cmdline`)[0]) && // its title
    fs.readlinkSync(`/proc/${npm}/exe`) === fs.realpathSync(node);
  return isNpm ? [...shell, npm] : [];
}

const strings = file => fs.readFileSync(file, 'utf8').split('\0');

function environment(pid) {
  return Object.fromEntries(strings(`/proc/${pid}/environ`).map(line => {
    const at = line.indexOf('=');
    return [line.slice(0, at), line.slice(at + 1)];
  }));
}

// forThisSystem returns the arguments for spawn.
function forThisSystem([command, ...args]) {
  if (process.platform !== 'win32') return [command, args];
  // npx is npx.cmd, which only cmd.exe can run.
  const script = findScript(command);
  if (script === undefined) return [command, args];
  const line = [script, ...args].map(quoteForCmd).join(' ');
  return [process.env.ComSpec || 'cmd.exe', ['/d', '/s', '/c', `"${line}"`], { windowsVerbatimArguments: true }];
}

// findScript finds the batch file that a command's name means, if there is one.
function findScript(command) {
  const folders = /[\\/]/.test(command) ? [''] : ['', ...(process.env.PATH ?? '').split(path.delimiter)];
  const endings = ['', ...(process.env.PATHEXT || '.COM;.EXE;.BAT;.CMD').split(';')];
  for (const folder of folders) {
    for (const ending of endings) {
      const file = path.join(folder, command + ending.toLowerCase());
      if (!/\.\w+$/.test(file) || !fs.existsSync(file)) continue;
      return /\.(bat|cmd)$/i.test(file) ? file : undefined;
    }
  }
  return undefined;
}

// quoteForCmd quotes for the C library, and then from cmd.exe.
function quoteForCmd(word) {
  const quoted = `"${word.replace(/(\\*)"/g, '$1$1\\"').replace(/(\\+)$/, '$1$1')}"`;
  return quoted.replace(/[()%!^"<>&|]/g, '^$&');
}

main(process.argv.slice(2));

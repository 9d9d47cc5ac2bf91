// Where the binary is, for programs that start others by it.
'use strict';

const fs = require('node:fs');
const { delimiter, isAbsolute, join, resolve } = require('node:path');

const { name, version, optionalDependencies: parts } = require('./package.json');

// path returns the path of the binary: the given one, that of FINI_BINARY, of the package for this machine, or on PATH.
function path({ binary } = {}) {
  if (process.platform !== 'linux') throw new Error(`it needs Linux, and this is ${process.platform}`);
  const part = `@${name}/linux-${process.arch}`;
  const given = binary || process.env.FINI_BINARY;
  const first = given ? resolve(given) : packaged(part);
  const why = first && unusable(first);
  if (first && !why) return first;
  const file = given ? undefined : onPath().find(file => !unusable(file));
  if (file) return file;
  const from = binary ? 'the option binary' : given ? 'FINI_BINARY' : `the npm package ${part}`;
  if (first) throw new Error(`${from}: ${first} ${why}`);
  if (!(part in parts)) throw new Error(`there is none for ${process.arch}`);
  throw new Error(`${from} is missing: npm install ${part}@${version}`);
}

function packaged(part) {
  try {
    return require.resolve(`${part}/bin/fini`);
  } catch {
    return undefined; // a bundler has left it behind, or it was not installed
  }
}

// onPath skips what execvp(3) takes for the working directory: that may be a stranger's checkout.
const onPath = () => (process.env.PATH ?? '').split(delimiter).filter(isAbsolute).map(folder => join(folder, 'fini'));

// unusable says why this machine can't execute a file, if so: an execve that fails ends Node by SIGABRT. A script called fini
// may be this package's own, or another program.
function unusable(file) {
  try {
    if (!fs.statSync(file).isFile()) return 'is not a file'; // to open a FIFO waits for its writer
    fs.accessSync(file, fs.constants.X_OK);
    return machine(file) === machine('/proc/self/exe') ? '' : 'is not a program for this machine';
  } catch (error) {
    if (error.code === 'ENOENT') return 'does not exist';
    return error.code === 'EACCES' ? 'is not executable' : `can't be read: ${error.message}`;
  }
}

// machine is the part of elf(5)'s header that names the machine: the magic number, class, byte order and e_machine.
function machine(file) {
  const header = Buffer.alloc(20);
  const fd = fs.openSync(file);
  try {
    fs.readSync(fd, header);
  } finally {
    fs.closeSync(fd);
  }
  return header.toString('latin1', 0, 6) + header.toString('latin1', 18);
}

let said = false;

// wrap returns what to start in the place of a command. Without a binary it is the command, unless fini is required.
function wrap(command, args = [], flags = [], { required = false, ...options } = {}) {
  try {
    return { command: path(options), args: [...flags, '--', command, ...args] };
  } catch (error) {
    if (required) throw new Error(`fini: ${error.message}`, { cause: error });
    if (!said) console.error(`fini: ${error.message}: ${command} runs without it`);
    said = true;
    return { command, args: [...args] };
  }
}

module.exports = { path, wrap };

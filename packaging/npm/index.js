// Where the binary is, for programs that start others by it.
'use strict';

const fs = require('node:fs');
const { delimiter, join } = require('node:path');

const { name, version, optionalDependencies: parts } = require('./package.json');

// path returns the path of the binary: the given one, that of FINI_BINARY, of the package for this machine, or on PATH.
function path({ binary } = {}) {
  const part = `${name}-linux-${process.arch}`;
  if (process.platform !== 'linux') throw new Error(`it needs Linux, and this is ${process.platform}`);
  const given = binary || process.env.FINI_BINARY;
  const file = (given ? [given] : [packaged(part), ...onPath()]).find(isBinary);
  if (file) return file;
  if (given) throw new Error(`${binary ? 'the option binary' : 'FINI_BINARY'}: ${given} is not a program for this machine`);
  if (!(part in parts)) throw new Error(`there is none for ${process.arch}`);
  throw new Error(`the npm package ${part} is missing: npm install ${part}@${version}`);
}

function packaged(part) {
  try {
    return require.resolve(`${part}/bin/fini`);
  } catch {
    return undefined; // a bundler has left it behind, or it was not installed
  }
}

const onPath = () => (process.env.PATH ?? '').split(delimiter).map(folder => join(folder, 'fini'));

// isBinary says whether this machine can execute a file: an execve that fails ends Node by SIGABRT. A script called fini
// may be this package's own, or another program.
function isBinary(file) {
  try {
    fs.accessSync(file, fs.constants.X_OK);
    return machine(file) === machine('/proc/self/exe');
  } catch {
    return false;
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

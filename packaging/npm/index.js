// Where the binary is, for programs that start others by it.
'use strict';

const fs = require('node:fs');
const { delimiter, join } = require('node:path');

const { name, version, optionalDependencies: parts } = require('./package.json');

// path returns the path of the binary: the given one, that of FINI_BINARY, of the package for this machine, or on PATH.
function path({ binary = process.env.FINI_BINARY } = {}) {
  const part = `${name}-linux-${process.arch}`;
  if (process.platform !== 'linux') throw new Error(`it needs Linux, and this is ${process.platform}`);
  const file = binary || packaged(part) || onPath();
  if (file) {
    fs.accessSync(file, fs.constants.X_OK); // an execve that fails ends Node by SIGABRT
    return file;
  }
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

// onPath looks for a binary, because a script called fini may be this package's own, or another program.
function onPath() {
  return (process.env.PATH ?? '').split(delimiter).map(folder => join(folder, 'fini')).find(file => {
    try {
      fs.accessSync(file, fs.constants.X_OK);
      const start = Buffer.alloc(4);
      const fd = fs.openSync(file);
      fs.readSync(fd, start);
      fs.closeSync(fd);
      return start.toString('latin1') === '\x7fELF';
    } catch {
      return false;
    }
  });
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

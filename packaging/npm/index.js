// Where the binary is, for programs that start others by it.
'use strict';

const fs = require('node:fs');

const { name, version, optionalDependencies: parts } = require('./package.json');

// path is that of the binary, for this system.
function path() {
  const part = `${name}-linux-${process.arch}`;
  if (process.platform !== 'linux') throw new Error(`it needs Linux, and this is ${process.platform}`);
  if (!(part in parts)) throw new Error(`there is none for ${process.arch}`);
  let file;
  try {
    file = require.resolve(`${part}/bin/fini`);
  } catch {
    throw new Error(`the npm package ${part} is missing: npm install ${part}@${version}`);
  }
  fs.accessSync(file, fs.constants.X_OK); // an execve that fails ends Node by SIGABRT
  return file;
}

let said = false;

// wrap is what to start in the place of a command. Without a fini for this system it is the command.
function wrap(command, args = [], flags = []) {
  try {
    return { command: path(), args: [...flags, '--', command, ...args] };
  } catch (error) {
    if (!said) console.error(`fini: ${error.message}: ${command} runs without it`);
    said = true;
    return { command, args: [...args] };
  }
}

module.exports = { path, wrap };

export interface Options {
  /** The path of the binary. Without it, the variable FINI_BINARY, the package for this machine, and the absolute folders of PATH are tried. */
  binary?: string;
}

/** The path of the binary. Throws if there is no binary for this system. */
export function path(options?: Options): string;
/**
 * What to start in the place of a command: fini with the command. If there is no binary, it is the command itself, and
 * one line on standard error says so; with `required`, wrap throws instead.
 * Spawn it without a shell; in a shell line, put `exec` before it, or fini doesn't see your process exit.
 */
export function wrap(
  command: string, args?: readonly string[], flags?: readonly string[], options?: Options & { required?: boolean },
): { command: string; args: string[] };

export * from './report';

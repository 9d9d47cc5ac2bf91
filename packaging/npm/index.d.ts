/** The path of the binary. Throws where there is none for this system. */
export function path(): string;
/** What to start in the place of a command: that under fini, or where there is none the command, with one line. */
export function wrap(command: string, args?: readonly string[], flags?: readonly string[]): { command: string; args: string[] };

export * from './report';

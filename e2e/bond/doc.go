// Package bond holds promise 7: the parent's death ends the tree, and so do the other reasons to stop (--bind,
// --timeout, the end of standard input).
package bond

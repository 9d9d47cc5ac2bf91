// Package kill9 holds promise 8: SIGKILL of any one fini process ends the tree.
package kill9

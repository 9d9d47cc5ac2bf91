// Package leftovers holds promise 2: when fini is gone, no process of the tree is alive, whatever the tree did.
// The policies of --orphans are here too.
package leftovers

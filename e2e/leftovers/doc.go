// Package leftovers holds promise 2: when fini is gone, no process of the tree is alive, whatever the tree did.
// The policies of --orphans are here too; what each of them leaves alone is in room report, because the report lists it.
package leftovers

// Package bystanders holds promise 4: a process outside the tree is never signalled, whatever pid it has.
package bystanders

// Package exhaustion holds the first half of promise 9: fini survives full tables, too little memory and full
// disks, and says once which feature it gave up.
package exhaustion

package main

// gaps are what is known not to hold, or not to be testable, somewhere.
var gaps = []gap{}

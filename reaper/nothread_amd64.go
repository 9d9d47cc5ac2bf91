package reaper

var noThread [2]uint64

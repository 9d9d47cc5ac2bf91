package entry

var noThread [2]uint64

var _ = &noThread // entry_amd64.s uses it

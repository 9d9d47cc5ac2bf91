package rig

import "github.com/seed-126c5d8a/fini/internal/tests/check"

// What the rooms share with the unit tests, whose package check is. A room says rig for all of it.
var (
	Ageless      = check.Ageless
	Await        = check.Await
	Bystander    = check.Bystander
	Case         = check.Case
	Complete     = check.Complete
	Device       = check.Device
	DrawnFor     = check.DrawnFor
	EnoughNow    = check.EnoughNow
	Equal        = check.Equal
	FillPipe     = check.FillPipe
	Full         = check.Full
	HungUp       = check.HungUp
	Linked       = check.Linked
	Long         = check.Long
	MustKill     = check.MustKill
	MustParse    = check.MustParse
	MustRecord   = check.MustRecord
	MustStay     = check.MustStay
	NewLines     = check.NewLines
	NoError      = check.NoError
	Pipe         = check.Pipe
	Poll         = check.Poll
	Put          = check.Put
	Quick        = check.Quick
	QuickOrFull  = check.QuickOrFull
	ReadFile     = check.ReadFile
	Rounds       = check.Rounds
	Run          = check.Run
	Serial       = check.Serial
	ShortTempDir = check.ShortTempDir
	Socketpair   = check.Socketpair
	Succeed      = check.Succeed
	Until        = check.Until
	UntilOlder   = check.UntilOlder
	WantOnce     = check.WantOnce
	WriteProgram = check.WriteProgram
)

type (
	Lines = check.Lines
	Wait  = check.Wait
)

const (
	Patience    = check.Patience
	Enough      = check.Enough
	UntilSleeps = check.UntilSleeps
)

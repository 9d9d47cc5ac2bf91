package rig

import ()

func ParentOf(pid int) int { return StatOf(pid).Number(4) }

func GroupOf(pid int) int { return StatOf(pid).Number(5) }

func SessionOf(pid int) int { return StatOf(pid).Number(6) }

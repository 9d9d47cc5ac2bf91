// Package kernel asks the kernel whether it obeys the rules that the model in internal/life/world_test.go takes for
// granted.
package kernel

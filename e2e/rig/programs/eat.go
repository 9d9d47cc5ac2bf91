package programs

// runEat takes memory until it is killed for it.
func runEat([]string) int {
	var all [][]byte
	for range 1 << 20 {
		part := make([]byte, 1<<20)
		for i := 0; i < len(part); i += 4096 {
			part[i] = 1
		}
		all = append(all, part)
	}
	return len(all)
}

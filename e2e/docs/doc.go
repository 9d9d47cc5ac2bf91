// Package docs compares the pages with the program: each flag, link, command line, example and recipe is run or
// parsed.
package docs

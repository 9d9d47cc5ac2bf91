// Pictures draws docs/pair.svg and docs/stop.svg: the two processes of fini and what happens when one is killed, and the
// times of a stop. A picture has a background of its own, so that it can be read on a dark page as well.
package main

import (
	"fmt"
	"html"
	"os"
	"strings"
)

func main() {
	for name, picture := range pictures() {
		if err := os.WriteFile(name, []byte(picture), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "pictures:", err)
			os.Exit(1)
		}
	}
}

// pictures returns the text of each file.
func pictures() map[string]string {
	return map[string]string{"docs/pair.svg": pair(), "docs/stop.svg": stop()}
}

const (
	ink, grey, red = "#1f2328", "#6e7781", "#b42318"
	calm, busy     = "#ddf4ff", "#fff8c5" // the colour of a process, and of one that stops the others
	dead           = "#f6f8fa"
)

// A canvas is a picture that is being drawn.
type canvas struct{ strings.Builder }

func newCanvas(width, height int, title string) *canvas {
	c := new(canvas)
	fmt.Fprintf(c, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%d" role="img" font-family="sans-serif" font-size="14">
<title>%s</title>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" fill="%s"/></marker></defs>
<rect x="0.5" y="0.5" width="%d" height="%d" rx="8" fill="#ffffff" stroke="#d0d7de"/>
`, width, height, html.EscapeString(title), ink, width-1, height-1)
	return c
}

// text writes a line whose anchor, start, middle or end, is at x.
func (c *canvas) text(x, y int, anchor, colour, text string) {
	fmt.Fprintf(c, "<text x=\"%d\" y=\"%d\" text-anchor=\"%s\" fill=\"%s\">%s</text>\n", x, y, anchor, colour, html.EscapeString(text))
}

// box draws a rectangle with a text in its middle. A border with dashes is that of something gone.
func (c *canvas) box(x, y, width, height int, fill, text string) {
	colour, dashes := ink, ""
	if fill == dead {
		colour, dashes = grey, ` stroke-dasharray="4 3"`
	}
	fmt.Fprintf(c, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"5\" fill=\"%s\" stroke=\"%s\"%s/>\n", x, y, width, height, fill, colour, dashes)
	c.text(x+width/2, y+height/2+5, "middle", colour, text)
}

// line draws a straight line, with an arrow's tip or without.
func (c *canvas) line(x1, y1, x2, y2 int, more string) {
	fmt.Fprintf(c, "<path d=\"M%d %dL%d %d\" stroke=\"%s\" fill=\"none\" %s/>\n", x1, y1, x2, y2, ink, more)
}

func (c *canvas) done() string { return c.String() + "</svg>\n" }

const arrow = `marker-end="url(#tip)"`

// pair draws three trees of processes: all is well, the outer process is killed, and the inner one is.
func pair() string {
	c := newCanvas(860, 375, "Unless it is PID 1, fini is two processes. If one is killed, the other stops the command and its descendants.")
	const width, height, step = 170, 34, 66
	names := []string{"parent", "fini, outer process", "fini, inner process", "command", "its descendants"}
	for i, tree := range []struct {
		title  string
		killed int // of the names, or -1
		works  int // who stops the others, or -1
		below  []string
	}{
		{"Both processes run.", -1, -1, []string{"They sleep and watch each other.", "Signals are forwarded."}},
		{"The outer process is killed.", 1, 2, []string{"The inner process notices that, and", "stops the command and the rest."}},
		{"The inner process is killed.", 2, 1, []string{"The command is now a child of the", "outer process, which stops it all."}},
	} {
		x := 62 + i*272
		c.text(x+width/2, 32, "middle", ink, tree.title)
		y := func(n int) int { return 48 + n*step*4/5 }
		for n, name := range names {
			fill := calm
			switch n {
			case tree.killed:
				fill, name = dead, name+" †"
			case tree.works:
				fill = busy
			}
			c.box(x, y(n), width, height, fill, name)
			if n > 0 && n != tree.killed && n-1 != tree.killed {
				c.line(x+width/2, y(n-1)+height, x+width/2, y(n), arrow)
			}
		}
		if tree.killed == 2 { // past the dead process
			fmt.Fprintf(c, "<path d=\"M%d %dh18V%dh-16\" stroke=\"%s\" fill=\"none\" %s/>\n", x+width, y(1)+height/2, y(3)+height/2, ink, arrow)
		}
		for n, line := range tree.below {
			c.text(x+width/2, 328+n*20, "middle", ink, line)
		}
	}
	return c.done()
}

// stop draws a stop by -i with the default times, in which nobody exits by himself, as a line for the command and one for its
// leftovers.
func stop() string {
	c := newCanvas(860, 292, "A stop that begins with the end of stdin: SIGTERM after 5 s, SIGKILL after 10 s, and the leftovers' end after 15.5 s")
	const left, second, top, height = 120, 45, 70, 40
	at := func(seconds float64) int { return left + int(seconds*second) }
	span := func(row int, from, to float64, fill, text string) {
		c.box(at(from), top+row*70, at(to)-at(from), height, fill, text)
	}
	mark := func(row int, seconds float64, colour, text, anchor string) {
		y := top + row*70
		c.line(at(seconds), y-6, at(seconds), y+height+6, "")
		c.text(at(seconds), y-12, anchor, colour, text)
	}
	c.text(left-12, top+height/2+5, "end", ink, "command")
	c.text(left-12, top+70+height/2+5, "end", ink, "leftovers")
	span(0, 0, 5, calm, "--grace")
	span(0, 5, 10, busy, "--grace")
	span(1, 0, 10, calm, "run with the command")
	span(1, 10, 10.5, calm, "")
	span(1, 10.5, 15.5, busy, "--orphans-grace")
	mark(0, 0, ink, "stdin closes", "start")
	mark(0, 5, ink, "SIGTERM", "middle")
	mark(0, 10, red, "SIGKILL", "middle")
	mark(1, 10, ink, "--linger", "end")
	mark(1, 10.5, ink, "SIGTERM", "start")
	mark(1, 15.5, red, "SIGKILL", "middle")
	axis := top + 70 + height + 28
	c.line(at(0), axis, at(16), axis, arrow)
	for _, seconds := range []float64{0, 5, 10, 10.5, 15.5} {
		c.line(at(seconds), axis-4, at(seconds), axis+4, "")
		anchor := map[float64]string{10: "end", 10.5: "start"}[seconds]
		if anchor == "" {
			anchor = "middle"
		}
		c.text(at(seconds), axis+20, anchor, ink, fmt.Sprintf("%g s", seconds))
	}
	c.text(left, axis+48, "start", grey, "Each wait ends as soon as the processes have exited.")
	c.text(left, axis+68, "start", grey, "If you send SIGTERM and -k is given, or if the parent dies, the stop begins with the first SIGTERM.")
	return c.done()
}

package reproducecmd_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/cmd/internal/app"
	"github.com/kdiag/kdiag/cmd/internal/apptest"
	"github.com/kdiag/kdiag/cmd/internal/cli"
)

// terminal returns both ends of a new pseudo-terminal: the person's and the program's.
func terminal(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	apptest.Must(t, err)
	t.Cleanup(func() { _ = person.Close() })
	fd := int(person.Fd())
	apptest.Must(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	apptest.Must(t, err)
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	apptest.Must(t, err)
	t.Cleanup(func() { _ = program.Close() })
	return person, program
}

// TestView plays incidents at a terminal, at which somebody types q as soon as there is something to see.
func TestView(t *testing.T) {
	for _, tt := range []struct {
		name, scenario string
		seen           string // what makes the person type
		code           int
		text           string // begins the last paragraphs, after the view
	}{
		{"to the end", "healthy", "REPRODUCED  SIMULATION", 0, "REPRODUCED  SIMULATION  healthy: the node stays Ready"},
		{"left in the middle", "list-hang", "LOOK    PLEG: one relist hangs", 2, "INTERRUPTED  SIMULATION  list-hang: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			person, program := terminal(t)
			before, err := unix.IoctlGetTermios(int(program.Fd()), unix.TCGETS)
			apptest.Must(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			ended := make(chan int)
			go func() {
				code := app.Main(ctx, cli.Env{
					In: program, InTTY: true, Out: program, OutTTY: true, Err: program, Root: "/", Width: 80,
					Now: time.Now, Hostname: os.Hostname, Getenv: func(string) string { return "" },
				}, []string{"reproduce", tt.scenario, "--tui", "--speed", unhurriedSpeed, "--color", "never"})
				_, _ = fmt.Fprintln(program, "the end")
				ended <- code
			}()
			var shown strings.Builder
			part, typed := make([]byte, 1<<16), false
			for !strings.Contains(shown.String(), "the end") {
				n, err := person.Read(part)
				apptest.Must(t, err)
				shown.Write(bytes.ReplaceAll(part[:n], []byte("\r"), nil))
				if !typed && strings.Contains(shown.String(), tt.seen) {
					typed = true
					_, err := person.WriteString("q")
					apptest.Must(t, err)
				}
			}
			view, text, _ := strings.Cut(shown.String(), "\x1b[?1049l")
			if code := <-ended; code != tt.code || !typed || strings.Contains(view, "q\x1b") {
				t.Errorf("exit code %d, want %d; typed %t\n%s", code, tt.code, typed, text)
			}
			for _, want := range []string{tt.scenario + "  ", " fault ", " cleaned-up ", "\n\n" + tt.text} {
				if !strings.Contains(text, want) {
					t.Errorf("no %q after the view:\n%s", want, text)
				}
			}
			after, err := unix.IoctlGetTermios(int(program.Fd()), unix.TCGETS)
			apptest.Must(t, err)
			if after.Lflag != before.Lflag {
				t.Errorf("the terminal is left as %x, it was %x", after.Lflag, before.Lflag)
			}
		})
	}
}

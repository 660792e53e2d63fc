package app

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"
)

// A terminal is a pseudo-terminal at which a person types q as soon as there is something to see. What is typed and
// shown passes it by, since nobody can wait for it in fake time.
type terminal struct {
	*os.File
	typed io.ReadCloser
	seen  string
	once  sync.Once
	press func()

	mu    sync.Mutex
	shown bytes.Buffer
}

func newTerminal(t *testing.T, seen string) *terminal {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	fd := int(person.Fd())
	must(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	must(t, err)
	program, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	typed, key := io.Pipe()
	t.Cleanup(func() {
		_, _, _ = person.Close(), program.Close(), typed.Close()
	})
	return &terminal{File: program, typed: typed, seen: seen, press: func() {
		if mode := lflag(t, program); mode&(unix.ECHO|unix.ICANON) != 0 {
			t.Errorf("the terminal's mode is %x while somebody may type q", mode)
		}
		go func() { _, _ = io.WriteString(key, "q") }()
	}}
}

// lflag returns whether a terminal echoes, and waits for the end of a line.
func lflag(t *testing.T, terminal *os.File) uint32 {
	t.Helper()
	mode, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
	must(t, err)
	return mode.Lflag
}

func (t *terminal) Read(b []byte) (int, error) { return t.typed.Read(b) }

func (t *terminal) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shown.Write(b)
	if strings.Contains(t.shown.String(), t.seen) {
		t.once.Do(t.press)
	}
	return len(b), nil
}

// TestView plays incidents at a terminal, to the end or until somebody leaves.
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
			synctest.Test(t, func(t *testing.T) {
				terminal := newTerminal(t, tt.seen)
				before := lflag(t, terminal.File)
				env, _, _ := timeless()
				env.In, env.Out, env.Err, env.InTTY, env.OutTTY = terminal, terminal, terminal, true, true
				code := run(t.Context(), env, []string{"reproduce", tt.scenario, "--tui", "--color", "never"})
				_, text, left := strings.Cut(terminal.shown.String(), "\x1b[?1049l")
				if code != tt.code || !left {
					t.Errorf("exit code %d, want %d\n%s", code, tt.code, text)
				}
				for _, want := range []string{tt.scenario + "  ", " fault ", " cleaned-up ", "\n\n" + tt.text} {
					if !strings.Contains(text, want) {
						t.Errorf("no %q after the view:\n%s", want, text)
					}
				}
				if after := lflag(t, terminal.File); after != before {
					t.Errorf("the terminal is left as %x, it was %x", after, before)
				}
			})
		})
	}
}

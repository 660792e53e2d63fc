package cli

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/term"
)

// System returns the surroundings of this process.
func System() Env {
	env := Env{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		Now: time.Now, Getenv: os.Getenv, Hostname: os.Hostname,
		Root: "/", Self: "/proc/self/exe", Plugin: filepath.Base(os.Args[0]) == "kubectl-kdiag",
		InTTY:  term.IsTerminal(int(os.Stdin.Fd())),
		OutTTY: term.IsTerminal(int(os.Stdout.Fd())),
		ErrTTY: term.IsTerminal(int(os.Stderr.Fd())),
		Width:  80,
	}
	for _, f := range []*os.File{os.Stdout, os.Stderr} {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
			env.Width = w
			break
		}
	}
	return env
}

// ASCII reports whether pictures must do without block characters: the locale has none, or the terminal is a serial
// line or a text console, whose fonts often lack them.
func (e Env) ASCII() bool {
	term := e.Getenv("TERM")
	if term == "linux" || term == "dumb" || strings.HasPrefix(term, "vt") {
		return true
	}
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := e.Getenv(name); v != "" {
			v = strings.ToLower(v)
			return !strings.Contains(v, "utf-8") && !strings.Contains(v, "utf8")
		}
	}
	return false
}

// Color reports whether to colour standard output, given the value of --color.
func (e Env) Color(mode string) bool {
	switch mode {
	case "always":
		return true
	case "never":
		return false
	}
	return e.OutTTY && e.Getenv("NO_COLOR") == "" && e.Getenv("TERM") != "dumb"
}

// Package cli holds what all subcommands share: the process's surroundings as a value, the flags that mean the same
// everywhere, and the errors that carry a hint and an exit code.
package cli

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/term"
)

// Exit codes of kdiag, the same in every command and every format. They are also the codes of a custom plugin of the
// node problem detector.
const (
	ExitHealthy = 0 // healthy, or the work was done
	ExitProblem = 1 // a problem was found, or part of the work failed
	ExitUnknown = 2 // could not tell: bad usage, no permission, no runtime to ask, interrupted
)

// Sockets open the sockets of a runtime in this process. They are nil for the kernel's; tests have some in memory.
type Sockets struct {
	Listen func(path string) (net.Listener, error)
	Dial   func(ctx context.Context, path string) (net.Conn, error)
}

// ownCommand matches the start of a command that works off a node, in a text.
var ownCommand = regexp.MustCompile(`(^|[,;:(] ?|or )kdiag (fleet|node|explain)\b`)

// Named returns a command, or a hint, as somebody types it who typed this one: as a plugin of kubectl. What runs on a
// node has the name there that it was copied with.
func (e Env) Named(text string) string {
	if !e.Plugin {
		return text
	}
	text = strings.NewReplacer("scp $(command -v kdiag)", "scp $(command -v kubectl-kdiag)",
		"sudo /tmp/kdiag", "sudo /tmp/kubectl-kdiag").Replace(text)
	return ownCommand.ReplaceAllString(text, "${1}kubectl kdiag $2")
}

// Env is the process's surroundings. Commands reach the outside world through it only, so that a test can replace it.
type Env struct {
	In       io.Reader
	Out      io.Writer // results
	Err      io.Writer // everything else
	Log      io.Writer // a second place for kdiag's own log, at debug level; nil for none
	Now      func() time.Time
	Getenv   func(string) string
	Hostname func() (string, error)
	Root     string // the host's file system as this process sees it; "/" outside tests
	Plugin   bool   // this program was started as a plugin of kubectl, by the name kubectl-kdiag
	Self     string // this program, to be started anew for what may hang; empty where that must not be
	InTTY    bool   // In is a terminal, at which somebody may be asked
	OutTTY   bool   // Out is a terminal
	ErrTTY   bool   // Err is a terminal
	Width    int    // columns of the terminal; 80 when not known
	Sockets  Sockets
}

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

// version is set for a release: -ldflags "-X github.com/kdiag/kdiag/cmd/internal/cli.version=v1.2.3".
var version string

// Version returns the version of the release, else the one that the Go command stamps into the binary.
func Version() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "devel"
	}
	return info.Main.Version
}

// released matches the versions that have an image; a build between two releases has a longer one.
var released = regexp.MustCompile(`^v\d+\.\d+\.\d+(-(alpha|beta|rc)\.\d+)?$`)

// Image returns the name of the published image of this version, or nothing where it is not a release.
func Image() string {
	if v := Version(); released.MatchString(v) {
		return "ghcr.io/kdiag/kdiag:" + v
	}
	return ""
}

// Log returns kdiag's own log: at debug level to standard error with --verbose, to env.Log where that is kept, else
// nowhere.
func Log(env Env, verbose int) *slog.Logger {
	var to []io.Writer
	if verbose > 0 {
		to = append(to, env.Err)
	}
	if env.Log != nil {
		to = append(to, env.Log)
	}
	if len(to) == 0 {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(io.MultiWriter(to...), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

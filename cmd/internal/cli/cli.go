// Package cli holds what all subcommands share: the process's surroundings as a value, the flags that mean the same
// everywhere, and the errors that carry a hint and an exit code.
package cli

import (
	"context"
	"io"
	"net"
	"regexp"
	"strings"
	"time"
)

// Exit codes of kdiag, the same in every command and every format. They are also the codes of a custom plugin of the
// node problem detector.
const (
	ExitHealthy = 0 // healthy, or the work was done
	ExitProblem = 1 // a problem was found, or part of the work failed
	ExitUnknown = 2 // could not tell: bad usage, no permission, no runtime to ask, interrupted
)

// Sockets are those of a runtime in this process. Tests replace the kernel's, which are nil, by some in memory.
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

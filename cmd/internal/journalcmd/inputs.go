package journalcmd

import (
	"io"
	"os"
	"time"

	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/journal"
)

// stdinName is how a person names standard input.
const stdinName = "-"

// inputs returns what to read, and whether it is this node's own logs, which are what is read when nothing is named.
func inputs(env cli.Env, o *options, files []string) (list []journal.Input, own bool) {
	for _, name := range files {
		if name == stdinName {
			list = append(list, journal.Input{Kind: journal.Stream, Path: stdinName, Reader: env.In})
			continue
		}
		list = append(list, journal.Input{Kind: journal.Path, Path: name})
	}
	for _, pattern := range o.files {
		list = append(list, journal.Input{Kind: journal.Glob, Path: pattern})
	}
	for _, dir := range o.directories {
		list = append(list, journal.Input{Kind: journal.Directory, Path: dir})
	}
	if o.root != "" {
		list = append(list, journal.Input{Kind: journal.Root, Path: o.root})
	}
	switch {
	case len(list) > 0:
		return list, false
	case holdsText(env.In):
		return []journal.Input{{Kind: journal.Stream, Path: stdinName, Reader: waiting(env)}}, false
	}
	return []journal.Input{{Kind: journal.Root, Path: env.Root}}, true
}

// holdsText reports whether standard input is something that a person put there to be read: a file or a pipe. It is
// neither a terminal nor /dev/null, as under cron, systemd or the node problem detector; nor a socket, as in a command
// that ssh runs, which stays open for as long as the caller's terminal.
func holdsText(in io.Reader) bool {
	f, ok := in.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && (info.Mode().IsRegular() || info.Mode()&os.ModeNamedPipe != 0)
}

// patience is how long a pipe may be silent before kdiag prints what it waits for.
const patience = 3 * time.Second

// A waitingReader prints what it waits for when its first bytes are long in coming.
type waitingReader struct {
	io.Reader
	notice *time.Timer
}

func waiting(env cli.Env) io.Reader {
	return &waitingReader{env.In, time.AfterFunc(patience, func() {
		_, _ = io.WriteString(env.Err, "kdiag: waiting for log text on standard input\n"+
			"  hint: kdiag journal </dev/null reads this node's own logs\n")
	})}
}

func (w *waitingReader) Read(b []byte) (int, error) {
	n, err := w.Reader.Read(b)
	w.notice.Stop()
	return n, err
}

package journal

import (
	"bytes"
	"context"
	"io"
	"slices"
	"time"

	"github.com/kdiag/kdiag/crictl/safefile"
	"github.com/kdiag/kdiag/journal/journalfile"
	"github.com/kdiag/kdiag/journal/signature"
)

// A Dumped is a log in which a daemon wrote its goroutines: at SIGABRT, which systemd's watchdog sends, at SIGUSR1, or
// in a panic. Open opens the text around the last of them. It may hang as any read does.
type Dumped struct {
	Source string
	Role   Role       // of the daemon; empty where only the goroutines tell
	At     *time.Time // of a record of the dump, nil where none is known
	Open   func(ctx context.Context) (io.ReadCloser, error)
}

const (
	// maxDump bounds the text of one log in which a dump is: a kubelet with ten thousand goroutines writes some MiB.
	maxDump = 32 << 20
	// dumpLead and dumpRest are for how long before and after a record of it a dump may be written.
	dumpLead, dumpRest = 30 * time.Second, 2 * time.Minute
)

// dumped returns the logs among the sources that hold goroutine dumps, the newest dump first.
func (r *reader) dumped(sources []*source) (all []Dumped) {
	for _, s := range sources {
		if s.dump == nil {
			continue
		}
		d := Dumped{Source: s.Name}
		if at, ok := s.cal.instant(*s.dump); ok {
			d.At = timeOf(at)
		}
		switch {
		case s.kind == kindJournal && d.At != nil:
			for role, log := range map[Role]string{RoleKubelet: ExportKubelet, RoleRuntime: ExportRuntime} {
				d.Role = role
				d.Open = func(ctx context.Context) (io.ReadCloser, error) { return s.openEntries(ctx, log, *d.At) }
				all = append(all, d)
			}
		case s.kind == kindText:
			d.Open = func(context.Context) (io.ReadCloser, error) { return s.openText(r.opts.everySync) }
			all = append(all, d)
		case s.kind == kindStream:
			d.Open = func(context.Context) (io.ReadCloser, error) { return s.openStream(), nil }
			all = append(all, d)
		}
	}
	slices.SortStableFunc(all, func(a, b Dumped) int { return byTime(b.At, a.At, 0) })
	return all
}

// openEntries returns the entries of one log of a journal around an instant, in the journal's export format.
func (s *source) openEntries(ctx context.Context, log string, at time.Time) (io.ReadCloser, error) {
	f, err := journalfile.Open(s.path)
	if err != nil {
		return nil, plain(err)
	}
	defer f.Close() // was only read
	var text bytes.Buffer
	var buf []byte
	e := &exporter{logs: map[string]string{}, matcher: signature.NewMatcher()}
	q := journalfile.Query{
		Since: uint64(max(0, at.Add(-dumpLead).UnixMicro())), Until: uint64(max(1, at.Add(dumpRest).UnixMicro())),
	}
	_, err = f.Search(ctx, q, func(entry *journalfile.Entry) bool {
		if e.logOf(entry) == log {
			buf = entry.Export(buf[:0])
			text.Write(buf)
		}
		return text.Len() < maxDump
	})
	return io.NopCloser(&text), err
}

// openText opens a text log: its end, where only that is of interest.
func (s *source) openText(end bool) (io.ReadCloser, error) {
	f, err := safefile.Open(s.path, 0)
	if err == nil && end && s.Compressed == "" && s.size > maxDump {
		_, err = f.Seek(-maxDump, io.SeekEnd)
	}
	return f, err
}

// openStream returns a stream from its beginning, or the part that was kept where it cannot be read again.
func (s *source) openStream() io.ReadCloser {
	if seeker, ok := s.stream.(io.Seeker); ok {
		if _, err := seeker.Seek(0, io.SeekStart); err == nil {
			return io.NopCloser(s.stream)
		}
	}
	return io.NopCloser(bytes.NewReader(s.kept))
}

// A keeper keeps the part of a pipe in which the latest goroutine dump is, in to.
type keeper struct {
	io.Reader
	to     *[]byte
	behind int // bytes since a goroutine was last mentioned
}

func (k *keeper) Read(b []byte) (int, error) {
	const apart = 1 << 20 // bytes between two dumps
	n, err := k.Reader.Read(b)
	if bytes.Contains(b[:n], []byte("goroutine ")) {
		if k.behind > apart {
			*k.to = (*k.to)[:0]
		}
		k.behind = 0
	} else {
		k.behind += n
	}
	if k.behind <= apart && len(*k.to)+n <= maxDump {
		*k.to = append(*k.to, b[:n]...)
	}
	return n, err
}

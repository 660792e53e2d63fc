package journal

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/kdiag/kdiag/crictl/safefile"
	"github.com/kdiag/kdiag/journal/journalfile"
	"github.com/kdiag/kdiag/journal/signature"
)

// The logs that Export takes out of the node's journal. The last holds the records of all other senders that match a
// signature.
const (
	ExportKernel  = "kernel.export"
	ExportKubelet = "kubelet.export"
	ExportRuntime = "runtime.export"
	ExportNode    = "node.export"
)

// ExportKmsg is the log that Export makes of the kernel's own buffer where the journal has nothing of the kernel.
const ExportKmsg = "kernel.log"

// Export hands over the logs of the running node below root from since on, for another machine to read: what the
// kernel, the kubelet and the runtime wrote into the journal, in the journal's export format; else the kernel's own
// buffer, and of each text log that changed since then the last most bytes. take gets one or more whole records of a
// log by its name and where they come from; the bytes are valid during the call. The error is what could not be read,
// a line for each source.
func Export(
	ctx context.Context, root string, since time.Time, most int64, take func(log, source string, data []byte),
) error {
	e := &exporter{since: since, most: most, take: take, logs: map[string]string{}, matcher: signature.NewMatcher()}
	var errs []error
	for _, s := range node(root) {
		err := s.err
		switch {
		case ctx.Err() != nil:
			return errors.Join(append(errs, ctx.Err())...)
		case err == nil && s.kind == kindJournal:
			err = e.journal(ctx, s)
		case err == nil && s.kind == kindText:
			err = e.text(ctx, s)
		}
		switch {
		case errors.Is(err, ErrNoJournal):
			errs = append(errs, err)
		case err != nil && !errors.Is(err, ErrEmpty):
			errs = append(errs, fmt.Errorf("%s: %w", s.name, plain(err)))
		}
	}
	if !e.kernel {
		if err := e.kmsg(ctx); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", kmsgName, err))
		}
	}
	return errors.Join(errs...)
}

// mostSenders bounds the labels of senders that are remembered. A node has some hundred units.
const mostSenders = 4096

// An exporter is one run of Export.
type exporter struct {
	since   time.Time
	most    int64
	take    func(log, source string, data []byte)
	kernel  bool              // a record of the kernel was handed over
	logs    map[string]string // of senders, by label
	matcher *signature.Matcher
	matches []signature.Match
	buf     []byte
}

func (e *exporter) journal(ctx context.Context, s *source) error {
	f, err := journalfile.Open(s.path)
	if err != nil {
		return err
	}
	defer f.Close() // was only read
	q := journalfile.Query{Since: uint64(max(0, e.since.UnixMicro()))}
	_, err = f.Search(ctx, q, func(entry *journalfile.Entry) bool {
		log := e.logOf(entry)
		e.kernel = e.kernel || log == ExportKernel
		if log != "" {
			e.buf = entry.Export(e.buf[:0])
			e.take(log, s.path, e.buf)
		}
		return true
	})
	return err
}

// logOf returns the log that an entry belongs to by its sender, and for systemd's own by the unit that it is about;
// empty for none.
func (e *exporter) logOf(entry *journalfile.Entry) string {
	for label := range entry.Labels() {
		name, value, _ := bytes.Cut(label, []byte("="))
		switch string(name) {
		case "_TRANSPORT":
			if string(value) == "kernel" {
				return ExportKernel
			}
		case "_SYSTEMD_UNIT", "UNIT", "SYSLOG_IDENTIFIER":
			log, known := e.logs[string(value)]
			if !known {
				log = map[Role]string{RoleKubelet: ExportKubelet, RoleRuntime: ExportRuntime}[UnitRole(string(value))]
				if len(e.logs) < mostSenders {
					e.logs[string(value)] = log
				}
			}
			if log != "" {
				return log
			}
		}
	}
	if e.matches = e.matcher.Match(entry.Message, e.matches[:0]); len(e.matches) > 0 {
		return ExportNode
	}
	return ""
}

// text hands over the end of a text log, from the first whole line on.
func (e *exporter) text(ctx context.Context, s *source) error {
	if s.changed.Before(e.since) {
		return nil
	}
	switch filepath.Ext(s.path) {
	case ".gz", ".xz", ".zst", ".bz2": // secrets in it would not be found
		return errors.New("compressed: not copied")
	}
	f, err := safefile.Open(s.path, 0)
	if err != nil {
		return err
	}
	defer f.Close() // was only read
	from := max(0, s.size-e.most)
	log := strings.TrimSuffix(filepath.Base(s.path), ".log") + ".log"
	return e.lines(ctx, log, s.path, io.NewSectionReader(f, from, e.most), from > 0)
}

// lines hands over the lines of a text, without the first where that is a part of one.
func (e *exporter) lines(ctx context.Context, log, source string, r io.Reader, skip bool) error {
	b := bufio.NewReaderSize(r, 64<<10) // a longer line is handed over in parts
	for ctx.Err() == nil {
		line, err := b.ReadSlice('\n')
		switch {
		case skip:
			skip = err != nil
		case len(line) > 0:
			e.take(log, source, line)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
	return ctx.Err()
}

// kmsg hands over the kernel's buffer, which is the same in every container of the node.
func (e *exporter) kmsg(ctx context.Context) error {
	k, err := openKmsg(time.Now())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return plain(err)
	}
	defer k.close()
	return e.lines(ctx, ExportKmsg, kmsgName, k, false)
}

// Package collect gathers the evidence of an incident into a bundle. Each part has a deadline and a largest size; the
// most valuable part is written first.
package collect

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/bundle"
	"github.com/kdiag/kdiag/checks/capture"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/checks/redact"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/deadline"
)

// Input is the data of a bundle that was collected before, and how to collect the rest.
type Input struct {
	// Root is the host's file system as this process sees it; empty in a simulation, which has no host.
	Root  string
	Since time.Time // logs from then on
	Facts *facts.Input
	// Report and Relist are the documents of kdiag node and relist on Facts. Census returns the one of kdiag exited.
	Report *checks.Report
	Relist any
	Census func(ctx context.Context) (any, error)
	// Dumps are the dumps of the runtime, of stuck shims and of the kubelet. NoDumps says why none were to be taken.
	Dumps   []capture.Dump
	NoDumps string
	NoFacts string // why Facts are not packed; empty if they are

	Credentials kubelet.Credentials // for the kubelet's server
	APIServer   bool                // the server in the kubelet's kubeconfig may be asked
	Version     string              // of kdiag
	Log         io.Reader           // kdiag's own log of this run
	// Progress is called with the id of each part before Run waits for it.
	Progress func(part string)
}

// A part is a file or folder of the bundle.
type part struct {
	id        string        // stacks
	paths     []string      // in the archive; a trailing slash is a folder
	needsHost bool          // false for the parts that a simulation has too
	limit     time.Duration // the part is left behind after that
	most      int64         // bytes before compression; of logs the newest are kept
	required  bool          // kdiag bundle exits 1 without it
	collect   func(ctx context.Context, in *Input, to *files) error
}

// absent returns why a part does not apply; empty if it does.
func (p *part) absent(in *Input) string {
	switch {
	case p.id == stacksID && in.NoDumps != "":
		return in.NoDumps
	case p.id == factsID && in.NoFacts != "":
		return in.NoFacts
	case p.needsHost && (in.Root == "" || in.Facts.Node == nil):
		return "the runtime is simulated"
	}
	return ""
}

// An absence is the error of a part that does not apply here. It is not a failure.
type absence string

func (a absence) Error() string { return string(a) }

// Run collects all parts at the same time, and writes them into w in their order as they end, within ctx, whatever
// hangs. It returns the ids of the required parts that apply here and could not be collected. The error is of w:
// nothing more can be written.
func Run(ctx context.Context, in Input, w *bundle.Writer) (failed []string, _ error) {
	return run(ctx, in, w, parts())
}

func run(ctx context.Context, in Input, w *bundle.Writer, parts []part) (failed []string, _ error) {
	collected := make([]chan files, len(parts))
	for i, p := range parts {
		collected[i] = make(chan files, 1)
		go func() { collected[i] <- p.run(ctx, &in) }()
	}
	for i, p := range parts {
		in.Progress(p.id)
		got := <-collected[i]
		if got.err != nil {
			w.Lacks(strings.Join(p.paths, ", "), got.err.Error())
			if _, ok := errors.AsType[absence](got.err); p.required && !ok {
				failed = append(failed, p.id)
			}
		}
		if err := got.write(ctx, w, p.most); err != nil {
			return failed, err
		}
	}
	return failed, nil
}

// grace is the time after its limit in which a part may return its files so far.
const grace = 100 * time.Millisecond

// run collects a part. A part that hangs in the kernel is left behind at its limit.
func (p *part) run(ctx context.Context, in *Input) files {
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	got, err := deadline.RunGrace(ctx, "collecting "+p.id, grace, func(ctx context.Context) (files, error) {
		if why := p.absent(in); why != "" {
			return files{}, absence(why)
		}
		to := files{left: p.most + 1} // one more, so that write finds that there is more
		err := p.collect(ctx, in, &to)
		return to, err
	})
	switch got.err = err; {
	case errors.Is(err, deadline.ErrAbandoned):
		got.err = fmt.Errorf("no answer in %s; left behind", units.Duration(p.limit))
	case errors.Is(err, context.DeadlineExceeded):
		got.err = fmt.Errorf("not complete after %s", units.Duration(p.limit))
	}
	return got
}

// A timed text ends with the time for the whole bundle: redacting megabytes of a log takes a while.
type timed struct {
	ctx  context.Context
	text io.Reader
}

// Read reads text.
func (t timed) Read(b []byte) (int, error) {
	if t.ctx.Err() != nil {
		return 0, errors.New("the time for the whole bundle was up")
	}
	return t.text.Read(b)
}

// files are the files of one part, in memory.
type files struct {
	all    []file
	lacked []bundle.Missing
	err    error // why the part is missing or not complete
	left   int64 // bytes that the part may still read of the host
}

type file struct {
	path, source string
	format       redact.Format
	text         io.Reader // or
	doc          any
	indent       string
}

// add adds a file. Reading text must not block.
func (f *files) add(path, source string, format redact.Format, text io.Reader) {
	f.all = append(f.all, file{path: path, source: source, format: format, text: text})
}

// addJSON adds a document. It is encoded when it is written, so that the text of one is in memory at a time. Facts with
// thousands of containers are not indented.
func (f *files) addJSON(path, source string, doc any, indent string) {
	f.all = append(f.all, file{path: path, source: source, format: redact.JSON, doc: doc, indent: indent})
}

// reader returns the text of a file.
func (f *file) reader() io.Reader {
	if f.doc == nil {
		return f.text
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", f.indent)
	_ = enc.Encode(f.doc) // never fails
	return &text
}

// addFile adds a file of the host, or notes why it cannot be read.
func (f *files) addFile(path string, seen crictl.HostFiles, from string, format redact.Format) {
	text, err := readFile(seen, from, f.left)
	if f.left -= int64(len(text)); err != nil {
		f.lacks(path, fmt.Errorf("%s: %w", from, err))
		return
	}
	f.add(path, from, format, bytes.NewReader(text))
}

// lacks notes a file that could not be collected beside others of its part.
func (f *files) lacks(what string, err error) {
	f.lacked = append(f.lacked, bundle.Missing{What: what, Why: err.Error()})
}

// write writes the files, at most so many bytes, and notes that the rest is left out.
func (f *files) write(ctx context.Context, w *bundle.Writer, most int64) error {
	for _, l := range f.lacked {
		w.Lacks(l.What, l.Why)
	}
	for _, file := range f.all {
		from := file.reader()
		text := &io.LimitedReader{R: from, N: most}
		if file.format == redact.Text {
			text.R = timed{ctx, from}
		}
		if err := w.Add(file.path, file.source, file.format, text); err != nil {
			return err
		}
		if most = text.N; most > 0 {
			continue
		}
		if n, _ := from.Read(make([]byte, 1)); n > 0 {
			w.Lacks(file.path, "the rest: the part has reached its largest size")
		}
	}
	return nil
}

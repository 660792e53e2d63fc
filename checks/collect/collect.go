// Package collect gathers the evidence of an incident into a bundle. What is collected is data: each part has what it
// needs, its bounds and its value, and the most valuable part is written first.
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

// Input is what the parts need.
type Input struct {
	// Root is the host's file system as this process sees it; empty in a simulation, which has no host.
	Root  string
	Since time.Time // logs from then on
	Facts *facts.Input
	// Report and Relist are the documents of kdiag node and relist, of Facts. Census returns that of kdiag exited.
	Report *checks.Report
	Relist any
	Census func(ctx context.Context) (any, error)
	// Dumps were taken of the runtime, of stuck shims and of the kubelet. Where none were to be taken, NoDumps is why.
	Dumps   []capture.Dump
	NoDumps string
	NoFacts string // why Facts are not packed; empty where they are

	Credentials kubelet.Credentials // for the kubelet's server
	APIServer   bool                // the server in the kubelet's kubeconfig may be asked
	Version     string              // of kdiag
	Log         io.Reader           // kdiag's own log of this run
	// Progress is called with the id of the part that is waited for.
	Progress func(part string)
}

// A Part is one thing to collect.
type Part struct {
	ID    string        // stacks
	Paths []string      // in the archive; a trailing slash is a folder
	Needs string        // a host, systemd, a kubelet, the API server; empty for what a simulation has too
	Limit time.Duration // by then it is left behind
	Most  int64         // bytes before compression; of logs the newest are kept
	// Vital is set for the parts without which a bundle is of little use: kdiag bundle exits 1 where they lack.
	Vital bool

	collect func(ctx context.Context, in *Input, to *files) error
}

// absent returns why a part does not apply; empty where it does.
func (p *Part) absent(in *Input) string {
	switch {
	case p.ID == stacksID && in.NoDumps != "":
		return in.NoDumps
	case p.ID == factsID && in.NoFacts != "":
		return in.NoFacts
	case p.Needs != "" && (in.Root == "" || in.Facts.Node == nil):
		return "the runtime is simulated"
	}
	return ""
}

// An absence is the error of a part that does not apply here. That is no failure.
type absence string

func (a absence) Error() string { return string(a) }

// Run collects all parts at the same time, and writes them into w in their order as they end, within ctx, whatever
// hangs. It returns the ids of vital parts that could not be collected; those that do not apply here are not among
// them. The error is of w: nothing more can be written.
func Run(ctx context.Context, in Input, w *bundle.Writer) (failed []string, _ error) {
	return run(ctx, in, w, Parts())
}

func run(ctx context.Context, in Input, w *bundle.Writer, parts []Part) (failed []string, _ error) {
	var all []<-chan outcome
	for _, p := range parts {
		all = append(all, start(ctx, p, &in))
	}
	for i, p := range parts {
		in.Progress(p.ID)
		got := <-all[i]
		if got.err != nil {
			w.Lacks(strings.Join(p.Paths, ", "), got.err.Error())
			if _, ok := errors.AsType[absence](got.err); p.Vital && !ok {
				failed = append(failed, p.ID)
			}
		}
		if err := got.files.write(ctx, w, p.Most); err != nil {
			return failed, err
		}
	}
	return failed, nil
}

// An outcome is what a part has collected, and why not all of it.
type outcome struct {
	files files
	err   error
}

// lastMoment is what a part gets after its limit to hand over what it has.
const lastMoment = 100 * time.Millisecond

// start begins to collect a part. What hangs in the kernel is left behind at its limit.
func start(ctx context.Context, p Part, in *Input) <-chan outcome {
	out := make(chan outcome, 1)
	go func() {
		ctx, cancel := context.WithTimeout(ctx, p.Limit)
		defer cancel()
		got, err := deadline.RunGrace(ctx, "collecting "+p.ID, lastMoment, func(ctx context.Context) (files, error) {
			if why := p.absent(in); why != "" {
				return files{}, absence(why)
			}
			to := files{left: p.Most + 1} // one more, so that write finds that there is more
			err := p.collect(ctx, in, &to)
			return to, err
		})
		switch {
		case errors.Is(err, deadline.ErrAbandoned):
			err = fmt.Errorf("no answer in %s; left behind", units.Duration(p.Limit))
		case errors.Is(err, context.DeadlineExceeded):
			err = fmt.Errorf("not complete after %s", units.Duration(p.Limit))
		}
		out <- outcome{got, err}
	}()
	return out
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

// files are what one part has collected, in memory.
type files struct {
	all    []file
	lacked []bundle.Missing
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

// addJSON adds a document, which is encoded when it is written: in memory is the text of one at a time. Facts with
// thousands of containers are not indented.
func (f *files) addJSON(path, source string, doc any, indent string) {
	f.all = append(f.all, file{path: path, source: source, format: redact.JSON, doc: doc, indent: indent})
}

// encode returns the text of a document. Closed, it is encoded no further.
func encode(doc any, indent string) *io.PipeReader {
	text, to := io.Pipe()
	go func() {
		enc := json.NewEncoder(to)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", indent)
		_ = to.CloseWithError(enc.Encode(doc)) // never fails
	}()
	return text
}

// addFile adds a file of the host. One that cannot be read is noted.
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

// write writes the files, at most so many bytes. What exceeds them is left out, and noted.
func (f *files) write(ctx context.Context, w *bundle.Writer, most int64) error {
	for _, l := range f.lacked {
		w.Lacks(l.What, l.Why)
	}
	for _, file := range f.all {
		from := file.text
		if file.doc != nil {
			doc := encode(file.doc, file.indent)
			defer doc.Close() // has no error
			from = doc
		}
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

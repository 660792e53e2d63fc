package target

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/bundle"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/stacks"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/deadline"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/plegbench"
)

// maxDocument is the most bytes of a JSON document in a bundle: the facts of 20,000 containers have some 30 MiB.
const maxDocument = 256 << 20

// A Stored is a bundle that a command reads instead of a node.
type Stored struct {
	*bundle.Bundle
	Name string    // as a person gave it
	Host string    // of the node; empty where it is not known
	At   time.Time // when it was collected
}

// OpenStored opens and checks the bundle that a flag names. The error is one of usage.
func OpenStored(ctx context.Context, env cli.Env, f *cli.Flags, flag, name string) (*Stored, error) {
	asking, _ := f.Budget()
	ctx, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	progress := NewProgress(env)
	defer progress.Done()
	progress.Update(plegbench.Progress{Phase: "reading the archive"})
	shown, from := "standard input", env.In
	if name != "-" {
		file, err := cli.Look(name, func() (*os.File, error) { return bundle.OpenFile(name) })
		if err != nil {
			return nil, cli.Usage(flag+": "+err.Error(),
				"name an archive that kdiag bundle wrote, or - for standard input")
		}
		defer file.Close()
		shown, from = name, file
	} else if env.InTTY {
		return nil, cli.Usage(flag+" - reads standard input, which is a terminal", flag+" FILE reads a file")
	}
	b, err := deadline.Run(ctx, "reading the bundle",
		func(ctx context.Context) (*bundle.Bundle, error) { return bundle.Open(ctx, from) })
	if err != nil {
		hint := "kdiag reads what kdiag bundle wrote; nothing was unpacked"
		if _, system := errors.AsType[syscall.Errno](err); system {
			hint = "it is unpacked into an unlinked file; name a folder with room for it by TMPDIR"
		}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err, hint = errors.New("--timeout reached before the end of the archive"), "leave it out, or give it more"
		}
		return nil, cli.Usage(shown+": "+err.Error(), hint)
	}
	s := &Stored{Bundle: b, Name: shown, Host: b.Manifest.Host, At: b.Manifest.GeneratedAt}
	var report checks.Report
	if s.At.IsZero() && s.Decode(bundle.ReportName, &report) == nil { // a manifest is the last file: it may be cut off
		s.Host, s.At = report.Host, report.GeneratedAt
	}
	return s, nil
}

// hintCheck is what to do about a bundle that cannot be read.
const hintCheck = "kdiag bundle --list FILE shows what it holds, what it lacks and why"

// Decode reads a JSON document of the bundle. The error is one of usage.
func (s *Stored) Decode(name string, v any) error {
	file, err := s.File(name)
	if err == nil {
		err = json.NewDecoder(io.LimitReader(file, maxDocument)).Decode(v)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		problem := s.Name + " holds no " + name
		for _, m := range s.Manifest.NotCollected {
			if slices.Contains(strings.Split(m.What, ", "), name) {
				problem += ": " + m.Why
			}
		}
		return cli.Usage(problem, hintCheck)
	case errors.Is(err, io.ErrUnexpectedEOF):
		err = errors.New("it is cut off")
	}
	return cli.Usage(fmt.Sprintf("%s: %s: %v", s.Name, name, err), hintCheck)
}

// Note is a line on where an answer comes from, for a person.
func (s *Stored) Note() string {
	line := "captured"
	if !s.At.IsZero() {
		line += " " + s.At.UTC().Format(time.RFC3339)
	}
	return line + " in " + path.Base(s.Name)
}

// Say prints the note, the node and what is wrong with the bundle to standard error, where the answer has no place for
// them.
func (s *Stored) Say(env cli.Env) {
	note := s.Note() + " on " + cmp.Or(s.Host, "an unknown node")
	for _, line := range append([]string{note}, s.Manifest.Problems...) {
		_, _ = fmt.Fprintln(env.Err, "kdiag: "+render.Printable(line))
	}
}

// Logs returns the logs in the bundle, for journal.Options.
func (s *Stored) Logs() ([]journal.Input, error) {
	var all []journal.Input
	for _, name := range s.Names(bundle.LogsDir) {
		file, err := s.File(name)
		if err != nil {
			return nil, err
		}
		all = append(all, journal.Input{Kind: journal.Stream, Path: path.Base(name), Reader: file})
	}
	if len(all) == 0 {
		return nil, s.Decode(bundle.LogsDir, nil)
	}
	return all, nil
}

// Dumps reads the goroutine dumps in the bundle. The error is one of usage: there are none.
func (s *Stored) Dumps(ctx context.Context) (*Dumped, error) {
	d, older := &Dumped{Problems: s.Manifest.Problems, Node: s.seen()}, &Dumped{}
	known := map[string]checks.StackSource{}
	err := s.Decode(bundle.SourcesName, &known)
	for _, file := range s.Names(bundle.StacksDir) {
		name := path.Base(file)
		if file == bundle.SourcesName {
			continue
		}
		source := known[name]
		delete(known, name)
		source.Name = name
		to := d
		if strings.HasSuffix(name, bundle.BeforeSuffix) {
			to = older // without it there is less evidence
		}
		_ = to.Read(ctx, source, func() (io.ReadCloser, error) { // the error is in the source
			r, err := s.File(file)
			return io.NopCloser(r), err
		})
	}
	for _, one := range d.Dumps {
		same := func(o *stacks.Dump) bool { return o.Source.PID == one.Source.PID }
		if i := slices.IndexFunc(older.Dumps, same); i >= 0 {
			one.Before = older.Dumps[i]
		}
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		d.Dumps = append(d.Dumps, &stacks.Dump{Source: known[name]})
	}
	if len(d.Dumps) > 0 {
		err = nil
	}
	return d, err
}

// seen is what was seen of the node, whose processes its goroutines may wait for; nil where the bundle has no facts.
// They may be forged: what is worked out of them may panic.
func (s *Stored) seen() *facts.Input {
	var in facts.Input
	if s.Decode(bundle.FactsName, &in) != nil {
		return nil
	}
	return &in
}

// ListStored prints what a bundle holds, and checks it. flag is how it was named.
func ListStored(ctx context.Context, env cli.Env, f *cli.Flags, flag, name string) error {
	s, err := OpenStored(ctx, env, f, flag, name)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := render.BundleList(env.Out, &s.Manifest, s.Intact, Render(env, f)); err != nil {
		return err
	}
	if !s.Intact {
		return &cli.ExitError{Code: cli.ExitProblem}
	}
	return nil
}

// diagnoseStored has the facts in a bundle judged again.
func diagnoseStored[D checks.Answer](
	ctx context.Context, env cli.Env, f *cli.Flags, command string,
	judge func(checks.Header, *facts.Input) D, show func(io.Writer, D, render.Options) error,
) error {
	s, err := OpenStored(ctx, env, f, "--from", f.From)
	if err != nil {
		return err
	}
	defer s.Close()
	var in facts.Input
	var then checks.Report
	errReport := s.Decode(bundle.ReportName, &then)
	if err := s.Decode(bundle.FactsName, &in); err != nil {
		doc, ok := any(&then).(D)
		if !ok || errReport != nil {
			return err
		}
		s.quote(&then, f)
		return conclude(ctx, env, f, doc, append([]string{err.Error()}, s.Manifest.Problems...), show)
	}
	h := Header(env, command, "")
	h.Host, h.GeneratedAt, in.Runtime.From = s.Host, in.Now.UTC().Truncate(time.Second), Quote(f.From)
	// Facts that no node has, made by hand, are an error and not the end of the program.
	doc, err := deadline.Run(ctx, "judging the bundle", func(context.Context) (D, error) { return judge(h, &in), nil })
	if err != nil {
		return cli.Usage(fmt.Sprintf("%s: %s: %v", s.Name, bundle.FactsName, err), hintCheck)
	}
	problems := s.Manifest.Problems
	head, _, causes := doc.Answer()
	if head.Status == checks.Unknown && len(head.Problems) == 0 {
		problems = append(then.Problems, problems...) // why no runtime was found or could be asked is in no fact
	}
	if r, ok := any(doc).(*checks.Report); ok {
		note := s.Note()
		if len(causes) > 0 && r.Runtime.EndpointSource != string(crictl.SourceSimulated) {
			note += "; next steps are for " + cmp.Or(s.Host, "that node")
		}
		r.Notes = append([]string{note}, r.Notes...)
	}
	return conclude(ctx, env, f, doc, problems, show)
}

// quote makes a report of the bundle fit to be shown where its facts cannot be judged again. It has no next steps: they
// would be commands out of an archive that anybody may have written.
func (s *Stored) quote(r *checks.Report, f *cli.Flags) {
	for i := range r.Causes {
		r.Causes[i].NextSteps = []checks.NextStep{}
	}
	r.NextSteps, r.Runtime.From = nil, Quote(f.From)
	r.Notes = append([]string{s.Note() + "; as it was reported there, without next steps"}, r.Notes...)
}

// Package archive writes and opens the archives of kdiag bundle.
package archive

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/bundle"
	"github.com/kdiag/kdiag/checks/collect"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/checks/redact"
	"github.com/kdiag/kdiag/checks/stacks"
	"github.com/kdiag/kdiag/checks/upload"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/document"
	"github.com/kdiag/kdiag/cmd/internal/dumps"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/crictl/deadline"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/plegbench"
)

// maxDocument is the most bytes of a JSON document in a bundle: the facts of 20,000 containers have some 30 MiB.
const maxDocument = 256 << 20

// An Archive is a bundle that a command reads instead of a node.
type Archive struct {
	*bundle.Bundle
	Name string    // as a person gave it
	Host string    // of the node; empty where it is not known
	At   time.Time // when it was collected
}

// Open opens and checks the bundle that a flag names. The error is one of usage.
func Open(ctx context.Context, env cli.Env, f *cli.Flags, flag, name string) (*Archive, error) {
	ctx, cancel := f.Within(ctx)
	defer cancel()
	progress := document.NewProgress(env)
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
		hint := "kdiag reads archives of kdiag bundle; nothing was unpacked"
		if _, system := errors.AsType[syscall.Errno](err); system {
			hint = "it is unpacked into an unlinked file; name a folder with room for it by TMPDIR"
		}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err, hint = errors.New("--timeout reached before the end of the archive"), "leave it out, or give it more"
		}
		return nil, cli.Usage(shown+": "+err.Error(), hint)
	}
	s := &Archive{Bundle: b, Name: shown, Host: b.Manifest.Host, At: b.Manifest.GeneratedAt}
	var report checks.Report
	if s.At.IsZero() && s.Decode(bundle.ReportName, &report) == nil { // a manifest is the last file: it may be cut off
		s.Host, s.At = report.Host, report.GeneratedAt
	}
	return s, nil
}

// HintList is the hint for a bundle that cannot be read.
const HintList = "kdiag bundle --list FILE shows what it holds, what it lacks and why"

// Decode reads a JSON document of the bundle. The error is one of usage.
func (s *Archive) Decode(name string, v any) error {
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
		return cli.Usage(problem, HintList)
	case errors.Is(err, io.ErrUnexpectedEOF):
		err = errors.New("it is cut off")
	}
	return cli.Usage(fmt.Sprintf("%s: %s: %v", s.Name, name, err), HintList)
}

// Note returns a line on the origin of an answer.
func (s *Archive) Note() string {
	line := "captured"
	if !s.At.IsZero() {
		line += " " + s.At.UTC().Format(time.RFC3339)
	}
	return line + " in " + path.Base(s.Name)
}

// Say prints the note, the node and the problems of the bundle to standard error, for a document without a place for
// them.
func (s *Archive) Say(env cli.Env) {
	note := s.Note() + " on " + cmp.Or(s.Host, "an unknown node")
	for _, line := range append([]string{note}, s.Manifest.Problems...) {
		_, _ = fmt.Fprintln(env.Err, "kdiag: "+render.Printable(line))
	}
}

// Logs returns the logs in the bundle, for journal.Options.
func (s *Archive) Logs() ([]journal.Input, error) {
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
func (s *Archive) Dumps(ctx context.Context) (*dumps.Set, error) {
	d, older := &dumps.Set{Problems: s.Manifest.Problems}, &dumps.Set{}
	in := new(facts.Input) // its processes, for which goroutines may wait; it may be forged: deriving from it may panic
	if s.Decode(bundle.FactsName, in) == nil {
		d.Node = in
	}
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

// List prints the contents of a bundle, and checks them. flag is the flag that named it.
func List(ctx context.Context, env cli.Env, f *cli.Flags, flag, name string) error {
	s, err := Open(ctx, env, f, flag, name)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := render.BundleList(env.Out, &s.Manifest, s.Intact, document.Options(env, f)); err != nil {
		return err
	}
	if !s.Intact {
		return &cli.ExitError{Code: cli.ExitProblem}
	}
	return nil
}

// Write collects the evidence of in, which needs no Version and no Relist, into an archive of a format, of at most
// `most` bytes, within ctx. It returns the manifest, which lists vital parts that are missing or cut as problems, and
// the number of bytes written. If that is not 0, the archive can be read even with an error.
func Write(
	ctx context.Context, env cli.Env, out io.Writer, format string, most int64, level redact.Level, in collect.Input,
) (*bundle.Manifest, int64, error) {
	series := *in.Facts
	series.Limits = checks.RuntimeLimits()
	in.Version, in.Relist = cli.Version(), judge.NewRelistBenchmark(document.Header(env, "relist", ""), &series)
	host, _ := env.Hostname() // empty where there is none
	w, err := bundle.NewWriter(out, bundle.Options{
		Format: format, MaxBytes: most, Redact: level, Now: env.Now,
		Redactor: redact.New(level, append(collect.Names(in.Facts), host)),
	})
	if err != nil {
		return nil, 0, err
	}
	failed, err := collect.Run(ctx, in, w)
	header := document.Header(env, "bundle", bundle.KindManifest)
	header.Status = checks.Healthy
	if len(failed) > 0 {
		header.Status = checks.Degraded
		header.Problems = append(header.Problems, "not collected: "+strings.Join(failed, ", "))
	}
	manifest, errClose := w.Close(header)
	err = cmp.Or(errClose, err)
	problems := lost(manifest)
	if err != nil {
		problems = append(problems, err.Error()+"; what was written before can be read")
	}
	if len(problems) > 0 { // not in the archive, which is closed
		manifest.Status, manifest.Problems = checks.Degraded, append(manifest.Problems, problems...)
	}
	return manifest, w.Bytes(), err
}

// lost lists the files of an archive that are cut, and the vital ones that are missing.
func lost(m *bundle.Manifest) (problems []string) {
	there := map[string]bool{}
	for _, f := range m.Files {
		there[f.Path] = true
		if f.Cut != "" {
			problems = append(problems, f.Path+" is cut: "+f.Cut)
		}
	}
	for _, name := range []string{bundle.ReportName, bundle.FactsName} {
		if !there[name] {
			problems = append(problems, name+" is missing")
		}
	}
	return problems
}

// UploadFlags say where archives are sent.
type UploadFlags struct{ URL, Method, Headers, CA string }

// AddUpload adds the flags.
func (u *UploadFlags) AddUpload(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&u.URL, "upload", "",
		"send archives to this URL, or to that in @FILE; may have {node}, {time} and {cause}")
	fs.StringVar(&u.Method, "upload-method", http.MethodPut, "PUT or POST")
	fs.StringVar(&u.Headers, "upload-headers", "", "file with headers of the upload, one NAME: VALUE a line")
	fs.StringVar(&u.CA, "upload-ca", "", "file with the certificates of authorities that the server's may have")
}

// CheckUpload returns an error of bad flags.
func (u *UploadFlags) CheckUpload(cmd *cobra.Command) error {
	for _, flag := range []string{"upload-method", "upload-headers", "upload-ca"} {
		if u.URL == "" && cmd.Flags().Changed(flag) {
			return cli.Usage("--"+flag+" is for --upload", "add --upload URL")
		}
	}
	return cmp.Or(
		cli.RejectEmpty(cmd, "upload", "upload-headers", "upload-ca"),
		cli.OneOf(cmd, "upload-method", u.Method, []string{http.MethodPut, http.MethodPost}),
	)
}

// hostAuthorities are where distributions keep the certificates of authorities (certFiles in
// crypto/x509/root_linux.go).
var hostAuthorities = []string{
	"etc/ssl/certs/ca-certificates.crt", "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "etc/ssl/ca-bundle.pem",
	"etc/pki/tls/certs/ca-bundle.crt", "etc/pki/tls/cacert.pem", "etc/ssl/cert.pem",
}

// authorities returns --upload-ca; else, where this process sees none, as in an image with nothing but kdiag, those of
// the host.
func (u *UploadFlags) authorities(root string) string {
	own, err := x509.SystemCertPool()
	if u.CA != "" || err == nil && !own.Equal(x509.NewCertPool()) {
		return u.CA
	}
	i := slices.IndexFunc(hostAuthorities, func(name string) bool {
		info, err := cli.Look(name, func() (fs.FileInfo, error) { return os.Stat(filepath.Join(root, name)) })
		return err == nil && info.Mode().IsRegular()
	})
	if i < 0 {
		return ""
	}
	return filepath.Join(root, hostAuthorities[i])
}

// UploadTarget returns where archives are sent; nil without --upload. It reads the files that the flags name.
func (u *UploadFlags) UploadTarget(env cli.Env) (*upload.Target, error) {
	if u.URL == "" {
		return nil, nil
	}
	t, err := upload.New(upload.Options{
		URL: u.URL, Method: u.Method, Headers: u.Headers, CA: u.authorities(env.Root), ReadFile: cli.ReadFile,
	})
	if err != nil {
		return nil, cli.Usage("--upload: "+strings.TrimPrefix(err.Error(), "open "),
			"for example --upload 'https://logs.example.com/kdiag/{node}/{time}-{cause}.tar.zst'")
	}
	return t, nil
}

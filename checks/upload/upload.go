// Package upload sends archives of evidence to a server over HTTP, before the node is gone that they are about: to a
// presigned URL of an object store, or to a plain server. Archives that are not redacted are refused.
package upload

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/kdiag/kdiag/checks/bundle"
	"github.com/kdiag/kdiag/checks/redact"
	"github.com/kdiag/kdiag/internal/lazyregexp"
)

const (
	stall       = 10 * time.Second // without a byte sent, or without the answer after the last one
	most        = 10 * time.Minute // for one attempt
	connectTime = 5 * time.Second
	askFirst    = 1 << 20 // bytes from which the server is asked (100-continue) before they are sent
	answerTime  = time.Second
	maxAnswer   = 4 << 10  // bytes that are read of an answer
	maxFile     = 64 << 10 // bytes of the files that options name
	maxWhy      = 200      // bytes of the server's words in an error

	contentType, zstd = "Content-Type", "application/zstd"
)

// Options are where archives are sent, and how.
type Options struct {
	// URL is http or https. {node}, {time} and {cause} in it are replaced by those of each archive. @FILE is a file
	// that has it; the file is read again for each attempt.
	URL    string
	Method string // PUT, also where empty, or POST
	// Headers is a file with a header in each line, as NAME: VALUE, which is read again for each attempt. Empty lines
	// and those that begin with # are left out. CA is a file of PEM certificates in place of the system's.
	Headers, CA string
	// ReadFile reads a file of at most so many bytes. It must not hang.
	ReadFile func(name string, most int64) ([]byte, error)
}

// A Target is where archives are sent.
type Target struct {
	opts   Options
	client *http.Client
}

// An Archive is a file to send, or Data that is in none.
type Archive struct {
	Path  string
	Data  []byte
	Node  string
	Cause string // code
	At    time.Time
}

// An Error is why an archive was not sent. It has nothing of the URL but scheme, host and path.
type Error struct {
	Why string
	// Final is set where another attempt would fail alike.
	Final bool
	// After is how long the server asks to wait; 0 where it does not.
	After time.Duration
}

func (e *Error) Error() string { return e.Why }

// New checks options and reads all the files that they name.
func New(opts Options) (*Target, error) {
	opts.Method = cmp.Or(opts.Method, http.MethodPut)
	t := &Target{opts: opts}
	_, badURL := t.address(Archive{})
	_, badHeaders := t.headers()
	if err := cmp.Or(badURL, badHeaders); err != nil {
		return nil, err
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if opts.CA != "" {
		pem, err := opts.ReadFile(opts.CA, maxFile*16)
		if err != nil {
			return nil, err
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no certificate in PEM", opts.CA)
		}
	}
	t.client = &http.Client{
		// Headers and signature are for this server only.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: connectTime}).DialContext,
			TLSClientConfig: conf, TLSHandshakeTimeout: connectTime, ExpectContinueTimeout: answerTime,
			DisableKeepAlives: true, // an upload is rare
		},
	}
	return t, nil
}

// variable is a name in braces in a URL.
var variable = lazyregexp.New(`\{[^{}]*\}`)

// address returns the URL for an archive. The error has nothing of its query.
func (t *Target) address(a Archive) (*url.URL, error) {
	text, from := t.opts.URL, "the URL"
	if file, ok := strings.CutPrefix(text, "@"); ok {
		data, err := t.opts.ReadFile(file, maxFile)
		if err != nil {
			return nil, err
		}
		text, from = strings.TrimSpace(string(data)), file
	}
	values := map[string]string{
		"{node}": name(a.Node), "{cause}": name(a.Cause), "{time}": a.At.UTC().Format("20060102T150405Z"),
	}
	unknown, known := "", slices.Sorted(maps.Keys(values))
	for _, found := range variable.FindAllString(text, -1) {
		if values[found] == "" {
			unknown = found
		}
	}
	for _, k := range known {
		text = strings.ReplaceAll(text, k, values[k])
	}
	u, err := url.Parse(text)
	switch {
	case unknown != "":
		return nil, fmt.Errorf("%s has %s; it may have %s", from, unknown, strings.Join(known, ", "))
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil, errors.New(from + " is not an http or https URL")
	case u.User != nil:
		return nil, errors.New(from + " has a user: credentials belong into the headers")
	}
	return u, nil
}

// name returns a name as a part of a URL.
func name(s string) string { return cmp.Or(bundle.Plain(strings.Trim(s, ".")), "none") }

// header is a header of HTTP (RFC 9110, 5.1 and 5.5).
var header = lazyregexp.New(`^([!#$%&'*+.^_|~0-9A-Za-z\x60-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)$`)

// headers reads the file of headers.
func (t *Target) headers() (http.Header, error) {
	all := http.Header{contentType: {zstd}, "User-Agent": {"kdiag"}}
	if t.opts.Headers == "" {
		return all, nil
	}
	data, err := t.opts.ReadFile(t.opts.Headers, maxFile)
	if err != nil {
		return nil, err
	}
	n := 0
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if n++; line == "" || line[0] == '#' {
			continue
		}
		field := header.FindStringSubmatch(line)
		if field == nil {
			return nil, fmt.Errorf("%s, line %d: not NAME: VALUE", t.opts.Headers, n) // which may be a secret
		}
		all.Set(field[1], field[2])
	}
	return all, nil
}

// Where returns where an archive is sent, without the query.
func (t *Target) Where(a Archive) string {
	u, err := t.address(a)
	if err != nil {
		return "the server"
	}
	return plain(u)
}

// plain is a URL without its query.
func plain(u *url.URL) string { return u.Scheme + "://" + u.Host + u.EscapedPath() }

// Send sends an archive, once. It ends when nothing moves for ten seconds. The error is an *Error.
func (t *Target) Send(ctx context.Context, a Archive) error {
	text, done, err := open(a)
	if err != nil {
		return &Error{Why: err.Error(), Final: true}
	}
	defer done()
	if err := redacted(ctx, io.NewSectionReader(text, 0, text.Size())); err != nil {
		return &Error{Why: fmt.Sprintf("%s is not sent: %v", a.Path, err), Final: ctx.Err() == nil}
	}
	u, err := t.address(a)
	if err != nil {
		return &Error{Why: err.Error()} // the file may be mended
	}
	headers, err := t.headers()
	if err != nil {
		return &Error{Why: err.Error()}
	}
	if strings.HasSuffix(a.Path, ".tgz") && headers.Get(contentType) == zstd {
		headers.Set(contentType, "application/gzip")
	}
	e := t.put(ctx, text, u, headers)
	if e == nil {
		return nil
	}
	e.Why = "uploading to " + plain(u) + ": " + scrub(e.Why, u, headers)
	return e
}

// open opens an archive.
func open(a Archive) (_ *io.SectionReader, done func() error, _ error) {
	if a.Data != nil {
		return io.NewSectionReader(bytes.NewReader(a.Data), 0, int64(len(a.Data))), func() error { return nil }, nil
	}
	f, err := bundle.OpenFile(a.Path)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return io.NewSectionReader(f, 0, info.Size()), f.Close, nil
}

// redacted returns an error unless the manifest of an archive tells how it was redacted.
func redacted(ctx context.Context, archive io.Reader) error {
	m, err := bundle.ReadManifest(ctx, archive)
	if err != nil {
		return fmt.Errorf("whether it is redacted is unknown: %w", err)
	}
	if m.Redact != redact.Standard && m.Redact != redact.Strict {
		return errors.New("it is not redacted")
	}
	return nil
}

var errStalled = fmt.Errorf("nothing moved for %v", stall)

// put makes the request.
func (t *Target) put(ctx context.Context, text *io.SectionReader, u *url.URL, headers http.Header) *Error {
	ctx, done := context.WithTimeout(ctx, most)
	defer done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(stall, func() { cancel(errStalled) })
	defer idle.Stop()
	req, err := http.NewRequestWithContext(ctx, t.opts.Method, u.String(), moving{text, idle})
	if err != nil {
		return &Error{Why: "the method or the URL cannot be used", Final: true} // err has the URL
	}
	req.ContentLength, req.Header, req.Host = text.Size(), headers, headers.Get("Host") // else the URL's
	if text.Size() >= askFirst {
		req.Header.Set("Expect", "100-continue")
	}
	resp, err := t.client.Do(req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		if failed, ok := errors.AsType[*url.Error](err); ok { // has the URL
			err = failed.Err
		}
		return &Error{Why: err.Error()}
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) // only its words
	return outcome(resp, scrub(string(answer), u, headers))
}

// A moving reader notes that it was read.
type moving struct {
	io.Reader
	idle *time.Timer
}

func (m moving) Read(p []byte) (int, error) {
	m.idle.Reset(stall)
	return m.Reader.Read(p)
}

// words are what object stores say beside the status: S3, GCS and Azure alike.
var words = lazyregexp.New(`<(?:Code|Message)>([^<]*)</`)

// outcome reads an answer, which has no secrets any more.
func outcome(resp *http.Response, answer string) *Error {
	code := resp.StatusCode
	if code/100 == 2 {
		return nil
	}
	e := &Error{Why: "the server answers " + strconv.Itoa(code)}
	if text := http.StatusText(code); text != "" {
		e.Why += " " + text
	}
	for _, w := range words.FindAllStringSubmatch(answer, 2) {
		e.Why += ", " + strings.ToValidUTF8(w[1][:min(len(w[1]), maxWhy)], "")
	}
	switch {
	case code == http.StatusRequestTimeout, code == http.StatusTooEarly, code == http.StatusTooManyRequests, code >= 500:
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // a date is not waited for
		e.After = time.Duration(max(seconds, 0)) * time.Second
	case code/100 == 3:
		e.Why, e.Final = e.Why+"; redirects are not followed", true
	default:
		e.Final = true
	}
	return e
}

// leastSecret is the length from which a value of a query or header is removed from what a server says.
const leastSecret = 6

// scrub removes control characters, and what the query and the headers have.
func scrub(text string, u *url.URL, headers http.Header) string {
	values := []string{u.RawQuery}
	for _, of := range []map[string][]string{u.Query(), headers} {
		for _, v := range of {
			values = append(append(values, v...), url.QueryEscape(strings.Join(v, "")))
		}
	}
	slices.SortFunc(values, func(a, b string) int { return len(b) - len(a) })
	for _, v := range values {
		if len(v) >= leastSecret {
			text = strings.ReplaceAll(text, v, "REDACTED")
		}
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
}

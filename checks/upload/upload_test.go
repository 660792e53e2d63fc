package upload

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/bundle"
	"github.com/kdiag/kdiag/checks/redact"
	"github.com/kdiag/kdiag/checks/upload/uploadtest"
	"github.com/kdiag/kdiag/internal/testkit"
)

var must, equal = testkit.Must, testkit.Equal

// write writes an archive with one file of so many bytes, and returns its path.
func write(t *testing.T, dir, name string, level redact.Level, size int64) string {
	t.Helper()
	path := filepath.Join(dir, name)
	f, err := bundle.Create(path)
	must(t, err)
	w, err := bundle.NewWriter(f, bundle.Options{
		Redact: level, Redactor: redact.New(redact.Standard, nil), Now: time.Now,
	})
	must(t, err)
	text := strings.Repeat("a line of a log\n", int(size/16))
	must(t, w.Add("logs/kubelet.log", "/var/log", redact.Text, strings.NewReader(text)))
	_, err = w.Close(checks.Header{Status: checks.Healthy})
	must(t, err)
	must(t, f.Close())
	return path
}

const object = "/evidence/node-7.tar.zst"

// target returns a target of a presigned URL of a store.
func target(t *testing.T, address, headers string) *Target {
	t.Helper()
	file := filepath.Join(t.TempDir(), "headers")
	must(t, os.WriteFile(file, []byte(headers), 0o600))
	got, err := New(Options{
		URL: uploadtest.Presign(http.MethodPut, address+object, time.Now(), time.Hour), Headers: file,
		ReadFile: func(name string, _ int64) ([]byte, error) { return os.ReadFile(name) },
	})
	must(t, err)
	return got
}

// TestSend sends archives to a store that checks signatures. No error has anything of the signature or the headers.
func TestSend(t *testing.T) {
	const secret = "Bearer token-of-mine"
	answer := func(code int, after, body string) func(int, http.ResponseWriter, *http.Request) bool {
		return func(_ int, w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Retry-After", after)
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(code)
			_, _ = io.WriteString(w, strings.ReplaceAll(body, "QUERY", r.URL.RawQuery))
			return true
		}
	}
	for _, tt := range []struct {
		name  string
		fault func(int, http.ResponseWriter, *http.Request) bool
		level redact.Level
		want  string // ends the error; empty for none
		final bool
		after time.Duration
	}{
		{name: "taken", level: redact.Strict},
		{name: "not redacted", level: "none", final: true, want: "is not sent: it is not redacted"},
		{
			name: "busy", fault: answer(503, "7", "<Error><Code>SlowDown</Code></Error>"), after: 7 * time.Second,
			want: "the server answers 503 Service Unavailable, SlowDown",
		},
		{
			name: "elsewhere", fault: answer(307, "", ""), final: true,
			want: "the server answers 307 Temporary Redirect; redirects are not followed",
		},
		{
			name: "the server tells all", final: true,
			fault: answer(400, "", "<Error><Code>\x1b[31mQUERY</Code><Message>"+secret+"</Message>"),
			want:  "the server answers 400 Bad Request,  [31mREDACTED, REDACTED",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			store := &uploadtest.Store{Fault: tt.fault}
			server := httptest.NewServer(store)
			defer server.Close()
			to := target(t, server.URL, "# of a plain server\n\nAuthorization: "+secret+"\nx-ms-blob-type:BlockBlob\n")
			path := write(t, t.TempDir(), "a.tar.zst", cmp.Or(tt.level, redact.Standard), 3<<20)
			err := to.Send(t.Context(), Archive{Path: path})
			failed, _ := errors.AsType[*Error](err)
			if tt.want == "" {
				must(t, err)
				sent := []byte(testkit.Read(t, path))
				got, _ := store.Object(object)
				if !bytes.Equal(got.Data, sent) || got.Header.Get("x-ms-blob-type") != "BlockBlob" ||
					got.Header.Get("Authorization") != secret || got.Header.Get("Content-Type") != "application/zstd" {
					t.Errorf("%d bytes of %d, %v", len(got.Data), len(sent), got.Header)
				}
				return
			}
			if failed == nil || !strings.HasSuffix(failed.Why, tt.want) || failed.Final != tt.final || failed.After != tt.after {
				t.Fatalf("%+v, want %+v", failed, tt)
			}
			if strings.Contains(failed.Why, "X-Amz") || strings.Contains(failed.Why, secret) {
				t.Errorf("%q has a secret", failed.Why)
			}
		})
	}
}

// TestBadURL has addresses that cannot be used. No error has anything that may be secret.
func TestBadURL(t *testing.T) {
	for address, want := range map[string]string{
		"https://store/{node}/{time}-{cause}": "",
		"https://store/%zz?secret":            "the URL is not an http or https URL",
		"https:///{node}?secret":              "the URL is not an http or https URL",
		"https://me:secret@x":                 "the URL has a user: credentials belong into the headers",
	} {
		_, err := New(Options{URL: address})
		equal(t, address, want, testkit.Text(err))
	}
}

// TestStall gives up a server that takes nothing for ten seconds, but not one that is slow.
func TestStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, pause := range map[string]time.Duration{"nothing moved for 10s": time.Hour, "": 9 * time.Second} {
			path := write(t, t.TempDir(), "a.tar.zst", redact.Standard, 16)
			to := target(t, "http://store", "")
			to.client.Transport = slowly(pause)
			began := time.Now()
			got := testkit.Text(to.Send(t.Context(), Archive{Path: path}))
			if !strings.HasSuffix(got, name) || time.Since(began) > time.Minute {
				t.Errorf("%q after %v, want %q", got, time.Since(began), name)
			}
		}
	})
}

// slowly reads half of a body after a pause, and the rest after another.
type slowly time.Duration

func (s slowly) RoundTrip(r *http.Request) (*http.Response, error) {
	for range 2 {
		select {
		case <-time.After(time.Duration(s)):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
		_, _ = io.CopyN(io.Discard, r.Body, (r.ContentLength+1)/2)
	}
	return &http.Response{StatusCode: 201, Body: http.NoBody}, nil
}

// queue returns a queue of a folder whose sending is replaced. It logs the causes of archives, with problems.
func queue(t *testing.T, dir string, send func(Archive) *Error) (q *Queue, log func() []string) {
	var mu sync.Mutex
	var logged []string
	q = NewQueue(QueueOptions{
		Target: target(t, "http://store", ""), Dir: dir, Node: "node-7", Done: func(bool) {},
		Log: func(name, _, problem string) {
			c, _ := checks.ParseCapture(name)
			mu.Lock()
			defer mu.Unlock()
			logged = append(logged, strings.TrimSuffix(c.Cause+" "+problem, " "))
		},
	})
	q.send = func(_ context.Context, a Archive) error {
		if e := send(a); e != nil {
			return e
		}
		return nil
	}
	return q, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return logged
	}
}

var at = time.Date(2026, 11, 23, 14, 5, 12, 0, time.UTC)

// TestQueue follows queues through failures in fake time. Two archives wait, of which the newer one is tried first.
func TestQueue(t *testing.T) {
	older, newer := checks.CaptureName(at, "Older"), checks.CaptureName(at.Add(time.Minute), "Newer")
	for _, tt := range []struct {
		name  string
		fail  func(cause string, after time.Duration) *Error
		run   time.Duration
		tried [2]int // at least and at most
		log   []string
		sent  []string
	}{
		{
			"the server is away for ten minutes",
			func(_ string, after time.Duration) *Error {
				if after < 10*time.Minute {
					return &Error{Why: "refused"}
				}
				return nil
			},
			20 * time.Minute,
			[2]int{10, 14},
			[]string{"Newer refused; it is tried again", "Newer", "Older"},
			[]string{newer, older},
		},
		{
			"the older is refused", func(cause string, _ time.Duration) *Error {
				if cause == "Older" {
					return &Error{Why: "expired", Final: true}
				}
				return nil
			}, time.Hour, [2]int{2, 2}, []string{"Newer", "Older expired"}, []string{newer},
		},
		{
			"the server asks for time", func(_ string, after time.Duration) *Error {
				if after < 30*time.Second {
					return &Error{Why: "busy", After: 40 * time.Second}
				}
				return nil
			}, time.Minute + time.Second,
			[2]int{3, 3},
			[]string{"Newer busy; it is tried again", "Newer", "Older"},
			[]string{newer, older},
		},
		{
			"the server is away for good", func(string, time.Duration) *Error { return &Error{Why: "refused"} },
			49 * time.Hour,
			[2]int{400, 1200},
			nil, nil,
		},
	} {
		testkit.Bubble(t, tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for _, name := range []string{older, newer, "notes.txt", newer + ".part"} {
				must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
			}
			began, tried := time.Now(), 0
			q, log := queue(t, dir, func(a Archive) *Error {
				tried++
				return tt.fail(a.Cause, time.Since(began))
			})
			must(t, q.Resume(t.Context()))
			ctx := testkit.Within(t, tt.run)
			q.Run(ctx)
			if tried < tt.tried[0] || tried > tt.tried[1] || q.Pending() != 0 {
				t.Errorf("%d attempts, want %v; %d wait", tried, tt.tried, q.Pending())
			}
			if diff := gocmp.Diff(tt.log, log()); tt.log != nil && diff != "" {
				t.Errorf("log (-want +got):\n%s", diff)
			}
			for _, name := range tt.sent {
				_, err := os.Stat(filepath.Join(dir, name+checks.CaptureSent))
				must(t, err)
			}
			q, _ = queue(t, dir, nil) // after a restart
			must(t, q.Resume(t.Context()))
			equal(t, "after a restart wait", 2-len(tt.sent), q.Pending())
		})
	}
}

// TestQueueIsBounded drops the oldest, and counts them. What comes while the queue pauses is tried at once, also what
// is in memory; Finish ends the pause as well.
func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var works atomic.Bool
		tried := make(chan string, 1000)
		q, _ := queue(t, t.TempDir(), func(a Archive) *Error {
			if tried <- a.Cause; works.Load() {
				return nil
			}
			return &Error{Why: "refused"}
		})
		done := map[bool]int{}
		q.opts.Done = func(sent bool) { done[sent]++ }
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go q.Run(ctx)
		for i := range maxPending + 5 {
			q.Add(checks.CaptureName(at.Add(time.Duration(i)*time.Hour), "RuntimeHung"), []byte("archive"))
		}
		time.Sleep(time.Hour) // the pause is minutes now
		synctest.Wait()
		before := len(tried)
		q.Add(checks.CaptureName(at.Add(1000*time.Hour), "DiskFull"), []byte("archive"))
		synctest.Wait()
		if len(tried) != before+1 || q.Pending() != maxPending || done[false] != 6 {
			t.Errorf("%d tried, %d wait, %d given up", len(tried)-before, q.Pending(), done[false])
		}
		works.Store(true)
		end, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		q.Finish(end)
		if q.Pending() != 0 || done[true] != maxPending {
			t.Errorf("%d wait, %d were sent", q.Pending(), done[true])
		}
	})
}

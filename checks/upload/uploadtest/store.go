// Package uploadtest is an object store for tests. It takes what has a presigned URL of S3, whose signature it works
// out itself, as the documents of AWS have it (Signature Version 4, authenticating requests with query parameters).
package uploadtest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	keyID, secret = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY" // of the documents
	region        = "us-east-1"
	stamp         = "20060102T150405Z"
)

// An Object is what was put under a path.
type Object struct {
	Data   []byte
	Header http.Header
	At     time.Time
}

// A Store is an http.Handler.
type Store struct {
	// Fault answers a request instead, if it wants to; n counts them from 0.
	Fault func(n int, w http.ResponseWriter, r *http.Request) bool
	// Took is called with each object that was put; it may be nil.
	Took func(path string, o Object)

	mu      sync.Mutex
	asked   int
	objects map[string]Object
}

// Presign returns a URL that allows a method on an object until a time from now.
func Presign(method, address string, now time.Time, valid time.Duration) string {
	u, err := url.Parse(address)
	if err != nil {
		panic(err)
	}
	q := url.Values{
		"X-Amz-Algorithm": {"AWS4-HMAC-SHA256"}, "X-Amz-SignedHeaders": {"host"},
		"X-Amz-Credential": {keyID + "/" + scope(now)}, "X-Amz-Date": {now.UTC().Format(stamp)},
		"X-Amz-Expires": {strconv.Itoa(int(valid.Seconds()))},
	}
	q.Set("X-Amz-Signature", signature(method, u.EscapedPath(), u.Host, q, now))
	u.RawQuery = q.Encode()
	return u.String()
}

func scope(now time.Time) string {
	return now.UTC().Format("20060102") + "/" + region + "/s3/aws4_request"
}

// signature signs a request. The query is the one without the signature.
func signature(method, path, host string, query url.Values, at time.Time) string {
	request := strings.Join([]string{
		method, path, strings.ReplaceAll(query.Encode(), "+", "%20"), "host:" + host, "", "host", "UNSIGNED-PAYLOAD",
	}, "\n")
	sum := sha256.Sum256([]byte(request))
	text := strings.Join([]string{
		"AWS4-HMAC-SHA256", at.UTC().Format(stamp), scope(at), hex.EncodeToString(sum[:]),
	}, "\n")
	key := []byte("AWS4" + secret)
	for _, part := range append(strings.Split(scope(at), "/"), text) {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(part))
		key = mac.Sum(nil)
	}
	return hex.EncodeToString(key)
}

// ServeHTTP takes an object.
func (s *Store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	n := s.asked
	s.asked++
	s.mu.Unlock()
	if s.Fault != nil && s.Fault(n, w, r) {
		return
	}
	if code, message := check(r); code != "" {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s</Message><SignatureProvided>%s</SignatureProvided></Error>",
			code, message, r.FormValue("X-Amz-Signature"))
		return
	}
	if r.ContentLength < 0 {
		w.WriteHeader(http.StatusLengthRequired) // as S3 does
		return
	}
	data, err := io.ReadAll(r.Body)
	if err != nil { // cut off
		return
	}
	o := Object{data, r.Header.Clone(), time.Now()}
	if s.Took != nil {
		s.Took(r.URL.Path, o)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects == nil {
		s.objects = map[string]Object{}
	}
	s.objects[r.URL.Path] = o
}

// check returns the error of a request without a valid signature.
func check(r *http.Request) (code, message string) {
	q := r.URL.Query()
	given := q.Get("X-Amz-Signature")
	q.Del("X-Amz-Signature")
	at, err := time.Parse(stamp, q.Get("X-Amz-Date"))
	if err != nil || !hmac.Equal([]byte(given), []byte(signature(r.Method, r.URL.EscapedPath(), r.Host, q, at))) {
		return "SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided"
	}
	seconds, err := strconv.Atoi(q.Get("X-Amz-Expires"))
	if err != nil || time.Now().After(at.Add(time.Duration(seconds)*time.Second)) {
		return "AccessDenied", "Request has expired"
	}
	return "", ""
}

// Object returns what was put under a path.
func (s *Store) Object(path string) (Object, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.objects[path]
	return o, ok
}

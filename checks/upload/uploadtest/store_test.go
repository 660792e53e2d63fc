package uploadtest

import (
	"net/http"
	"net/url"
	"testing"
	"time"
)

// TestSignature has the example of the documents of AWS.
func TestSignature(t *testing.T) {
	at := time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC)
	u, err := url.Parse(Presign(http.MethodGet, "https://examplebucket.s3.amazonaws.com/test.txt", at, 24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	const want = "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
	if got := u.Query().Get("X-Amz-Signature"); got != want {
		t.Errorf("signature %s, want %s", got, want)
	}
}

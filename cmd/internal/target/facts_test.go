package target

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestShorten(t *testing.T) {
	long := strings.Repeat("é", 1<<20)
	if got := shorten(long); utf8.RuneCountInString(got) != 128 || !utf8.ValidString(got) {
		t.Errorf("%d bytes, valid %v", len(got), utf8.ValidString(got))
	}
	if got := shorten("containerd"); got != "containerd" {
		t.Errorf("got %q", got)
	}
}

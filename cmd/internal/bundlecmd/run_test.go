package bundlecmd

import (
	"testing"
	"time"
)

// TestAsking takes its part of a --timeout that was given, also of one that is the default.
func TestAsking(t *testing.T) {
	given, usual := options{timeoutGiven: true}, options{}
	given.Timeout, usual.Timeout = time.Minute, time.Minute
	if given.asking() != 36*time.Second || usual.asking() != 9*time.Second {
		t.Errorf("given %v, usual %v", given.asking(), usual.asking())
	}
}

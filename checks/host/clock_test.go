package host

import (
	"testing"
	"time"
)

// TestReadClockReal cannot know whether somebody keeps this machine's clock; between two looks it does not jump by hours.
func TestReadClockReal(t *testing.T) {
	c, err := ReadClock(t.Context(), time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if c.Over < time.Millisecond || c.Jumped.Abs() > time.Hour || c.Suspended < -time.Second {
		t.Errorf("ReadClock = %+v", c)
	}
}

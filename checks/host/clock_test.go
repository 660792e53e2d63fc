package host

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestClockOf(t *testing.T) {
	before := instants{wall: time.Hour, monotonic: time.Minute, boot: time.Minute}
	later := func(wall, suspended time.Duration) instants {
		return instants{wall: time.Hour + time.Second + wall, monotonic: time.Minute + time.Second, boot: time.Minute + time.Second + suspended}
	}
	for _, tt := range []struct {
		name  string
		state clockState
		after instants
		want  Clock
	}{
		{"well", clockState{offset: 7, maxError: 9}, later(0, 0), Clock{
			Synchronised: true, Offset: 7 * time.Microsecond, MaxError: 9 * time.Microsecond, Over: time.Second,
		}},
		{"in nanoseconds", clockState{status: unix.STA_NANO | unix.STA_PLL, offset: -7, maxError: 9}, later(0, 0), Clock{
			Synchronised: true, Offset: -7, MaxError: 9 * time.Microsecond, Over: time.Second,
		}},
		{"nobody keeps it", clockState{status: unix.STA_UNSYNC}, later(0, 0), Clock{Over: time.Second}},
		{"set forward", clockState{}, later(time.Hour, 0), Clock{Synchronised: true, Jumped: time.Hour, Over: time.Second}},
		{"set back", clockState{}, later(-time.Hour, 0), Clock{Synchronised: true, Jumped: -time.Hour, Over: time.Second}},
		{"suspended", clockState{}, later(0, time.Hour), Clock{Synchronised: true, Suspended: time.Hour, Over: time.Second}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, clockOf(tt.state, before, tt.after)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

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

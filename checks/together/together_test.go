package together

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestGroup wants the panic of a part, however deep, to come out where the look waits, when all other parts have ended.
func TestGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := false
		defer func() {
			if v := recover(); v != "boom" || !ended {
				t.Errorf("caught %v, and the other part has ended: %v", v, ended)
			}
		}()
		var outer Group
		outer.Go(func() {
			var inner Group
			inner.Go(func() { panic("boom") })
			inner.Wait()
		})
		outer.Go(func() {
			time.Sleep(time.Second)
			ended = true
		})
		outer.Wait()
		t.Error("Wait returned")
	})
}

func TestGroupWithoutFault(t *testing.T) {
	var g Group
	got := make([]int, 10)
	for i := range got {
		g.Go(func() { got[i] = i })
	}
	g.Wait()
	for i, v := range got {
		if v != i {
			t.Errorf("part %d did not end: %d", i, v)
		}
	}
}

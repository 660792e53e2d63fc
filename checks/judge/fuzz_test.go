package judge

import (
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/crictl"
)

// FuzzJudge judges random mixtures of the nodes in testdata, in which random fields have other values. A second answer
// must be the same, what holds for every report must hold, and the documents must become JSON.
func FuzzJudge(f *testing.F) {
	for seed := range uint64(100) {
		f.Add(seed, hostile)
	}
	f.Add(uint64(1<<40), "grpc: trying to send message larger than max (99999999999 vs. 0)")
	f.Add(uint64(7), "no space left on device")
	f.Fuzz(func(t *testing.T, seed uint64, text string) {
		in := randomNode(rand.New(rand.NewPCG(seed, seed)), text)
		report := NewReport(checks.Header{}, in)
		equal(t, "a second answer", report, NewReport(checks.Header{}, in))
		checkReport(t, report)
		encode(t, report)
		encode(t, NewRuntimeProbe(checks.Header{}, in))
		encode(t, NewRelistBenchmark(checks.Header{}, in))
	})
}

// randomNode mixes lines of the scenarios with a recorded case, and changes fields at random.
func randomNode(r *rand.Rand, text string) *facts.Input {
	names := slices.Sorted(maps.Keys(recordedNodes()))
	in := readCase(names[r.IntN(len(names))])
	all, _ := scenarios()
	for range r.IntN(6) {
		_ = change(in, all[r.IntN(len(all))].lines) // as far as they fit what the node has by now
	}
	in.Summary = nil
	randomise(r, reflect.ValueOf(in).Elem(), text, []int{10, 100, 1000, math.MaxInt}[r.IntN(4)])
	if in.Summary = nil; in.Measurement != nil {
		in.Summarize()
	}
	return in
}

// recordedNodes are the recorded cases, read once: nothing here changes them.
var recordedNodes = sync.OnceValue(gallery)

// vocabulary is all that strings of the recorded cases hold, codes and roles among it.
var vocabulary = sync.OnceValue(func() []string {
	var all []string
	for _, in := range recordedNodes() {
		walkStrings(reflect.ValueOf(in).Elem(), func(_ string, v reflect.Value) { all = append(all, v.String()) })
	}
	slices.Sort(all)
	return append(slices.Compact(all), string(crictl.Canceled), string(crictl.PermissionDenied), "stale file handle")
})

// randomise gives one of so many values below v another value that its type allows.
func randomise(r *rand.Rand, v reflect.Value, text string, oneOf int) {
	now := r.IntN(oneOf) == 0
	period := []time.Duration{0, time.Duration(r.Int64N(int64(time.Minute))), time.Hour, -time.Second}[r.IntN(4)]
	switch v := v.Addr().Interface().(type) {
	case *time.Time:
		if now {
			*v = []time.Time{{}, v.Add(period), v.Add(-period), time.Unix(math.MaxInt32, 0)}[r.IntN(4)]
		}
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		always := v.Type() == reflect.TypeFor[*crictl.Pod]() // the client sets it
		switch {
		case (now || always) && v.IsNil():
			v.Set(reflect.New(v.Type().Elem()))
		case now && !always:
			v.SetZero()
		}
		if !v.IsNil() {
			own := reflect.New(v.Type().Elem()) // what it points to may be shared with a recorded case
			own.Elem().Set(v.Elem())
			v.Set(own)
			randomise(r, v.Elem(), text, oneOf)
		}
		return
	case reflect.Slice:
		own := reflect.MakeSlice(v.Type(), v.Len(), v.Len()+1)
		reflect.Copy(own, v)
		if now {
			own = own.Slice(0, r.IntN(v.Len()+2))
		}
		v.Set(own)
		for i := range v.Len() {
			randomise(r, v.Index(i), text, oneOf)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				randomise(r, v.Field(i), text, oneOf)
			}
		}
	}
	if !now {
		return
	}
	switch {
	case v.Kind() == reflect.Bool:
		v.SetBool(!v.Bool())
	case v.Kind() == reflect.String && r.IntN(2) == 0:
		v.SetString(text)
	case v.Kind() == reflect.String:
		v.SetString(vocabulary()[r.IntN(len(vocabulary()))])
	case v.CanInt():
		v.SetInt([]int64{0, 1, -1, 'T', 'D', 70_000, 5e9, math.MaxInt64, math.MinInt64, int64(period)}[r.IntN(10)])
	case v.CanUint():
		v.SetUint([]uint64{0, 1, 100, 'T', 'D', 70_000, math.MaxUint64}[r.IntN(7)])
	case v.CanFloat():
		v.SetFloat([]float64{0, 1, 99, -3, math.NaN(), math.Inf(1)}[r.IntN(6)])
	}
}

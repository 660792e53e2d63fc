package plegbench

import (
	"encoding/json"
	"testing"
)

// FuzzSummarize summarizes what a bundle may hold: nothing in it is certain.
func FuzzSummarize(f *testing.F) {
	whole, _ := json.Marshal(smallMeasurement())
	for _, s := range []string{
		string(whole),
		`{"Sandboxes": {"Sandboxes": [{"ID": "a"}], "Complete": true}, "Containers": {"Containers": [{"ID": "b"}],
			"Complete": true}, "Samples": [{"Sandboxes": {"Method": "x", "Code": "OK"},
			"Containers": {"Method": "x", "Code": "OK"}}]}`,
		`{"Sweep": {"Inspections": [{"Call": {"Method": "x", "Code": "OK", "Elapsed": 9223372036854775807}}]}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var m *Measurement
		if json.Unmarshal(data, &m) != nil || m == nil {
			return
		}
		Summarize(m, nil)
		SummarizeRPCs(m)
	})
}

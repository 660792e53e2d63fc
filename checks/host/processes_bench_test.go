package host

import "testing"

// BenchmarkReadPopulation reads the processes of this machine: for the first time, and again, as a service does at each
// look.
func BenchmarkReadPopulation(b *testing.B) {
	first, err := ReadPopulation(b.Context(), "/", testNames, Population{})
	if err != nil {
		b.Fatal(err)
	}
	for name, before := range map[string]Population{"first": {}, "next": first} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := ReadPopulation(b.Context(), "/", testNames, before); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(first.all)), "processes")
		})
	}
}

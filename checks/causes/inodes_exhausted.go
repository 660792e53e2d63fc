package causes

import "github.com/kdiag/kdiag/checks/facts"

// InodesExhausted is the code of this cause.
const InodesExhausted = "InodesExhausted"

func recogniseInodesExhausted(f *facts.Facts) *Finding {
	return shortOf(f, "inodes", f.Disk.ShortInodes, func(s *Steps, folder string) {
		s.Look("ionice -c3 du --inodes -x --max-depth=3 "+folder+" | sort -n | tail -n 20",
			"Find the folders with most files.")
	})
}

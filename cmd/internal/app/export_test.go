package app

// Run is Main without signals, whose goroutines do not end, as those in fake time must.
var Run = run

// Package klog parses records of the logging library klog: the header of a text line, and the JSON form. It reads
// all forms of the library that kubelets have used since 1.5, not what precedes a line (package textlog)
// nor what a message means (package signature).
//
// No function fails: of text that is cut, wrapped or pasted through a web page, they return what can be read.
package klog

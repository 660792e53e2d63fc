// Package klog parses records of the logging library klog: the header of a text line, and the JSON form. It reads
// all forms of the library that kubelets have used since 1.5. Package textlog reads the prefixes of a line, and package
// signature knows the meaning of a message.
//
// No function fails: of text that is cut, wrapped or pasted through a web page, they return what can be read.
package klog

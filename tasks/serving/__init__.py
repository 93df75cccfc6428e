"""Engines: start, adopt, reload, prove. vLLM over HTTP; never imported."""
